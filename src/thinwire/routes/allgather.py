"""Route allgather: everybody gets every payload and merges by itself. Traffic grows with the world."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.coders.base import Merge, Packer
from thinwire.coders.gather import aligned
from thinwire.groups.base import Pending, gather_bytes
from thinwire.routes.base import Journey, Message, Parcel, Route, encode_all, keep_all


class AllGather(Route):
    """One all-gather per message; payloads merge in rank order on every rank, so all get the same bits.

    Messages follow each other: while one travels, the next is encoded, and what arrived first is decoded.
    """

    name = "allgather"
    takes = frozenset({Merge.INT, Merge.GATHER})

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return aligned(packer.num_granules * packer.granule_bytes)

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return gather_bytes(self.payload_bytes(packer, world), world)

    def reduce(self, messages: Sequence[Message], journey: Journey) -> None:
        trips = [_Trip(message, index, journey) for index, message in enumerate(messages)]
        for step in (_Trip.send, _Trip.arrive):
            for trip in trips:
                step(trip)


class _Trip:
    """One message on its way; its buffers are its own, because several trips are under way at once."""

    def __init__(self, message: Message, index: int, journey: Journey) -> None:
        self.message, self.index, self.journey = message, index, journey
        self.pending: Pending
        self.received: Tensor

    def send(self) -> None:
        """Encode, start the all-gather, and note meanwhile what is held back."""
        group, clock = self.journey.group, self.journey.clock
        encode_all(self.message, clock, self.index)
        with clock.stage("travel", self.index):
            payloads = [parcel.payload for parcel in self.message]
            send = payloads[0] if len(payloads) == 1 else torch.cat(payloads)
            self.received = self._take("gathered", send.numel() * group.size).view(group.size, -1)
            self.pending = group.gather(send, self.received)
        keep_all(self.message, clock, self.index)

    def arrive(self) -> None:
        """Wait for all payloads, merge them and decode."""
        with self.journey.clock.stage("travel", self.index):
            self.pending.wait()
        start = 0
        for parcel in self.message:
            end = start + parcel.packer.num_granules * parcel.packer.granule_bytes
            sums = self._merged(parcel, self.received[:, start:end])
            with self.journey.clock.stage("decode", self.index):
                parcel.decode(sums)
            start += parcel.payload.numel()

    def _merged(self, parcel: Parcel, payloads: Tensor) -> Tensor:
        if not parcel.packer.merges:
            return payloads
        with self.journey.clock.stage("merge", self.index):
            nbytes = parcel.packer.sum_bytes(parcel.packer.num_granules)
            sums = self.journey.scratch.take("sums", nbytes)
            parcel.merge(payloads, sums)
            return sums.unsqueeze(0)

    def _take(self, name: str, nbytes: int) -> Tensor:
        return self.journey.scratch.take(f"{name} {self.index}", nbytes)

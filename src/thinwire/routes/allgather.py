"""Route allgather: everybody gets every payload and merges by itself. Traffic grows with the world."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Merge, Packer
from thinwire.codecs.coders.gather import aligned
from thinwire.groups.base import Pending, all_gather_bytes
from thinwire.routes.base import Journey, Message, Parcel, Route, Trip


class AllGather(Route):
    """One all-gather per message; payloads merge in rank order on every rank, so all get the same bits."""

    name = "allgather"
    takes = frozenset({Merge.INT, Merge.GATHER})

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return aligned(packer.payload_bytes)

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return all_gather_bytes(self.payload_bytes(packer, world), world)

    def send(self, message: Message, index: int, journey: Journey) -> Trip:
        with journey.clock.time("travel", index):
            payloads = [parcel.payload for parcel in message]
            send = payloads[0] if len(payloads) == 1 else torch.cat(payloads)
            room = journey.scratch.take(f"gathered {index}", send.numel() * journey.group.size)
            received = room.view(journey.group.size, -1)
            return _Trip(message, received, journey.group.all_gather(send, received), index, journey)


class _Trip(Trip):
    def __init__(
        self, message: Message, received: Tensor, pending: Pending, index: int, journey: Journey
    ) -> None:
        self.message, self.received, self.pending = message, received, pending
        self.index, self.journey = index, journey

    def arrive(self) -> Iterator[Tensor]:
        with self.journey.clock.time("travel", self.index):
            self.pending.wait()
        start = 0
        for parcel in self.message:
            yield self._merged(parcel, self.received[:, start : start + parcel.packer.payload_bytes])
            start += parcel.payload.numel()

    def _merged(self, parcel: Parcel, payloads: Tensor) -> Tensor:
        if not parcel.packer.merges:
            return payloads
        with self.journey.clock.time("merge", self.index):
            nbytes = parcel.packer.merged_bytes(parcel.packer.num_granules)
            sums = self.journey.scratch.take("sums", nbytes)
            parcel.packer.merge(payloads, parcel.agreed, sums)
            return sums.unsqueeze(0)

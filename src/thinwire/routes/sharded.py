"""Route sharded: every rank owns a shard, adds up all payloads of it, and sends the sum to everybody."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from thinwire.coders.base import Merge, Packer
from thinwire.coders.gather import aligned
from thinwire.groups.base import Pending, gather_bytes, swap_bytes
from thinwire.routes.base import Journey, Message, Route, encode_all, keep_all


class Sharded(Route):
    """TernGrad's parameter server with localised parameters, spread over all ranks.

    1. all-to-all of the packed shards (a shard is a whole number of granules, the same for every owner)
    2. every owner merges what it received, in rank order
    3. all-gather of the merged shards; for shared-scale integers this is exact: no second rounding

    Messages follow each other: while one travels, the next is encoded, and what arrived first is decoded.
    """

    name = "sharded"
    takes = frozenset({Merge.SUM, Merge.INT})

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return _shard_bytes(packer, world) * world

    def sent_bytes(self, packer: Packer, world: int) -> int:
        gathered = aligned(_sum_bytes(packer, world))
        return swap_bytes(self.payload_bytes(packer, world), world) + gather_bytes(gathered, world)

    def reduce(self, messages: Sequence[Message], journey: Journey) -> None:
        trips = [_Trip(message, index, journey) for index, message in enumerate(messages)]
        for step in (_Trip.send, _Trip.merge, _Trip.arrive):
            for trip in trips:
                step(trip)


class _Trip:
    """One message on its way; its buffers are its own, because several trips are under way at once."""

    def __init__(self, message: Message, index: int, journey: Journey) -> None:
        self.message, self.index, self.journey = message, index, journey
        self.world = journey.group.size
        self.pending: Pending
        self.received: Tensor
        self.gathered: Tensor

    def send(self) -> None:
        """Encode, start the all-to-all, and note meanwhile what is held back."""
        encode_all(self.message, self.journey.clock, self.index)
        with self.journey.clock.stage("travel", self.index):
            rows = self._rows()
            self.received = self._take("received", rows.numel())
            self.pending = self.journey.group.swap(rows, self.received)
        keep_all(self.message, self.journey.clock, self.index)

    def merge(self) -> None:
        """Wait for the shards this rank owns, add them up, and start the all-gather."""
        with self.journey.clock.stage("travel", self.index):
            self.pending.wait()
        with self.journey.clock.stage("merge", self.index):
            owned = self._merge_owned()
        with self.journey.clock.stage("travel", self.index):
            self.gathered = self._take("gathered", owned.numel() * self.world)
            self.pending = self.journey.group.gather(owned, self.gathered)

    def arrive(self) -> None:
        """Wait for all sums and decode them."""
        with self.journey.clock.stage("travel", self.index):
            self.pending.wait()
        with self.journey.clock.stage("decode", self.index):
            start = 0
            for parcel in self.message:
                nbytes = _sum_bytes(parcel.packer, self.world)
                parcel.decode(self.gathered[:, start : start + nbytes])
                start += aligned(nbytes)

    def _rows(self) -> Tensor:
        """Row r holds what goes to rank r: its shard of every parcel."""
        if len(self.message) == 1:
            return self.message[0].payload.view(self.world, -1)
        rows = self._take("message", sum(parcel.payload.numel() for parcel in self.message))
        start = 0
        for parcel in self.message:
            shard = _shard_bytes(parcel.packer, self.world)
            rows[:, start : start + shard] = parcel.payload.view(self.world, -1)
            start += shard
        return rows

    def _merge_owned(self) -> Tensor:
        sizes = [_sum_bytes(parcel.packer, self.world) for parcel in self.message]
        owned = self.journey.scratch.take(f"owned {self.index}", sum(map(aligned, sizes)))
        start = shard_start = 0
        for parcel, size in zip(self.message, sizes, strict=True):
            shard = _shard_bytes(parcel.packer, self.world)
            parcel.merge(self.received[:, shard_start : shard_start + shard], owned[start : start + size])
            owned[start + size : start + aligned(size)] = 0
            start, shard_start = start + aligned(size), shard_start + shard
        return owned

    def _take(self, name: str, nbytes: int) -> Tensor:
        return self.journey.scratch.take(f"{name} {self.index}", nbytes).view(self.world, -1)


def _shard_granules(packer: Packer, world: int) -> int:
    return -(-packer.num_granules // world)


def _shard_bytes(packer: Packer, world: int) -> int:
    return _shard_granules(packer, world) * packer.granule_bytes


def _sum_bytes(packer: Packer, world: int) -> int:
    return packer.sum_bytes(_shard_granules(packer, world))

"""Route sharded: every rank owns a shard, adds up all payloads of it, and sends the sum to everybody."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from thinwire.codecs.coders.base import Merge, Packer
from thinwire.codecs.coders.gather import aligned
from thinwire.groups.base import Pending, all_gather_bytes, all_to_all_bytes
from thinwire.routes.base import Journey, Message, Route, Trip


class Sharded(Route):
    """TernGrad's parameter server with localised parameters, spread over all ranks.

    1. all-to-all of the packed shards (a shard is a whole number of granules, the same for every owner)
    2. every owner merges what it received, in rank order
    3. all-gather of the merged shards; for shared-scale integers this is exact: no second rounding
    """

    name = "sharded"
    takes = frozenset({Merge.SUM, Merge.INT})

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return _shard_bytes(packer, world) * world

    def sent_bytes(self, packer: Packer, world: int) -> int:
        gathered = aligned(_merged_bytes(packer, world))
        return all_to_all_bytes(self.payload_bytes(packer, world), world) + all_gather_bytes(gathered, world)

    def send(self, message: Message, index: int, journey: Journey) -> Trip:
        return _Trip(message, index, journey)


class _Trip(Trip):
    """Two legs: shards to their owners, then sums to everybody."""

    def __init__(self, message: Message, index: int, journey: Journey) -> None:
        self.message, self.index, self.journey = message, index, journey
        self.world = journey.group.size
        self.gathered: Tensor
        with journey.clock.time("travel", index):
            rows = self._rows()
            self.received = self._take("received", rows.numel())
            self.pending: Pending = journey.group.all_to_all(rows, self.received)

    def merge(self) -> None:
        """Wait for the shards this rank owns, add them up, and start the all-gather."""
        with self.journey.clock.time("travel", self.index):
            self.pending.wait()
        with self.journey.clock.time("merge", self.index):
            owned = self._merge_owned()
        with self.journey.clock.time("travel", self.index):
            self.gathered = self._take("gathered", owned.numel() * self.world)
            self.pending = self.journey.group.all_gather(owned, self.gathered)

    def arrive(self) -> Iterator[Tensor]:
        with self.journey.clock.time("travel", self.index):
            self.pending.wait()
        start = 0
        for parcel in self.message:
            nbytes = _merged_bytes(parcel.packer, self.world)
            yield self.gathered[:, start : start + nbytes]
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
        sizes = [_merged_bytes(parcel.packer, self.world) for parcel in self.message]
        owned = self.journey.scratch.take(f"owned {self.index}", sum(map(aligned, sizes)))
        start = shard_start = 0
        for parcel, size in zip(self.message, sizes, strict=True):
            shard = _shard_bytes(parcel.packer, self.world)
            payloads, sums = self.received[:, shard_start : shard_start + shard], owned[start : start + size]
            parcel.packer.merge(payloads, parcel.agreed, sums)
            owned[start + size : start + aligned(size)] = 0
            start, shard_start = start + aligned(size), shard_start + shard
        return owned

    def _take(self, name: str, nbytes: int) -> Tensor:
        return self.journey.scratch.take(f"{name} {self.index}", nbytes).view(self.world, -1)


def _shard_granules(packer: Packer, world: int) -> int:
    return -(-packer.num_granules // world)


def _shard_bytes(packer: Packer, world: int) -> int:
    return _shard_granules(packer, world) * packer.granule_bytes


def _merged_bytes(packer: Packer, world: int) -> int:
    return packer.merged_bytes(_shard_granules(packer, world))

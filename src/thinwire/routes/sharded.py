"""Route sharded: every rank owns a shard, adds up all payloads of it, and sends the sum to everybody."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from thinwire.codec import BoundCodec, Codec
from thinwire.coders.base import Merge
from thinwire.errors import PlanError
from thinwire.groups.base import gather_bytes, swap_bytes
from thinwire.routes.base import Journey, Parcel, Route, aligned


class Sharded(Route):
    """TernGrad's parameter server with localised parameters, spread over all ranks.

    1. all-to-all of the packed shards (a shard is a whole number of granules, the same for every owner)
    2. every owner merges what it received, in rank order
    3. all-gather of the merged shards; for shared-scale integers this is exact: no second rounding
    """

    name = "sharded"
    takes = frozenset({Merge.SUM, Merge.INT})

    def check(self, codec: Codec) -> None:
        super().check(codec)
        if not codec.shardable:
            raise PlanError(f'{codec} payloads cannot be cut into shards: use route "allgather"')

    def payload_bytes(self, bound: BoundCodec) -> int:
        return _shard_bytes(bound) * bound.place.world

    def sent_bytes(self, bounds: Sequence[BoundCodec]) -> int:
        world = bounds[0].place.world if bounds else 1
        swapped = sum(map(self.payload_bytes, bounds))
        gathered = sum(aligned(_sum_bytes(bound)) for bound in bounds)
        return swap_bytes(swapped, world) + gather_bytes(gathered, world)

    def reduce(self, parcels: Sequence[Parcel], journey: Journey) -> None:
        group, scratch, clock = journey.group, journey.scratch, journey.clock
        with clock.stage("travel"):
            message = _message(parcels, journey)
            received = scratch.take("received", message.numel()).view(group.size, -1)
            group.swap(message, received)
        with clock.stage("merge"):
            owned = scratch.take("owned", sum(aligned(_sum_bytes(p.bound)) for p in parcels))
            _merge_owned(parcels, received, owned)
        with clock.stage("travel"):
            gathered = scratch.take("gathered", owned.numel() * group.size).view(group.size, -1)
            group.gather(owned, gathered)
        with clock.stage("decode"):
            start = 0
            for parcel in parcels:
                parcel.decode(gathered[:, start : start + _sum_bytes(parcel.bound)])
                start += aligned(_sum_bytes(parcel.bound))


def _shard_granules(bound: BoundCodec) -> int:
    return -(-bound.packer.num_granules // bound.place.world)


def _shard_bytes(bound: BoundCodec) -> int:
    return _shard_granules(bound) * bound.packer.granule_bytes


def _sum_bytes(bound: BoundCodec) -> int:
    return bound.packer.sum_bytes(_shard_granules(bound))


def _message(parcels: Sequence[Parcel], journey: Journey) -> Tensor:
    """Row r holds what goes to rank r: its shard of every lane."""
    size = journey.group.size
    if len(parcels) == 1:
        return parcels[0].payload.view(size, -1)
    total = sum(parcel.payload.numel() for parcel in parcels)
    message = journey.scratch.take("message", total).view(size, -1)
    start = 0
    for parcel in parcels:
        shard = _shard_bytes(parcel.bound)
        message[:, start : start + shard] = parcel.payload.view(size, -1)
        start += shard
    return message


def _merge_owned(parcels: Sequence[Parcel], received: Tensor, owned: Tensor) -> None:
    start = shard_start = 0
    for parcel in parcels:
        shard, sums = _shard_bytes(parcel.bound), _sum_bytes(parcel.bound)
        pieces = received[:, shard_start : shard_start + shard]
        parcel.bound.packer.merge(pieces, parcel.agreed, owned[start : start + sums])
        owned[start + sums : start + aligned(sums)] = 0
        start, shard_start = start + aligned(sums), shard_start + shard

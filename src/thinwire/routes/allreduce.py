"""Route allreduce: payloads add as floats inside the group's own ring all-reduce."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.codec import BoundCodec
from thinwire.coders.base import Merge
from thinwire.groups.base import sum_bytes
from thinwire.routes.base import Journey, Parcel, Route


class AllReduce(Route):
    """One all-reduce per lane. Sums depend on where a value lies in its buffer: bits may change with the buckets."""

    name = "allreduce"
    takes = frozenset({Merge.SUM})

    def payload_bytes(self, bound: BoundCodec) -> int:
        return bound.packer.num_granules * bound.packer.granule_bytes

    def sent_bytes(self, bounds: Sequence[BoundCodec]) -> int:
        return sum(sum_bytes(self.payload_bytes(bound), bound.place.world) for bound in bounds)

    def reduce(self, parcels: Sequence[Parcel], journey: Journey) -> None:
        for parcel in parcels:
            with journey.clock.stage("travel"):
                journey.group.sum_(parcel.payload.view(parcel.bound.packer.wire_dtype))
            with journey.clock.stage("decode"):
                parcel.decode(parcel.payload.unsqueeze(0))

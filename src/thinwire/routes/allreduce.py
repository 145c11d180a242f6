"""Route allreduce: payloads add as floats inside the group's own ring all-reduce."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.coders.base import Merge, Packer
from thinwire.groups.base import sum_bytes
from thinwire.routes.base import Journey, Message, Route


class AllReduce(Route):
    """One all-reduce per parcel; while some travel, the next ones are encoded and those that arrived decoded.

    Sums depend on where a value lies in its buffer: bits may change when the buckets do.
    """

    name = "allreduce"
    takes = frozenset({Merge.SUM})
    in_place = True

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return packer.num_granules * packer.granule_bytes

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return sum_bytes(self.payload_bytes(packer, world), world)

    def reduce(self, messages: Sequence[Message], journey: Journey) -> None:
        parcels = [parcel for message in messages for parcel in message]
        pendings = []
        for part, parcel in enumerate(parcels):
            with journey.clock.stage("encode", part):
                parcel.encode()
                parcel.keep()  # now: the sums take the payload's place
            with journey.clock.stage("travel", part):
                pendings.append(journey.group.sum_(parcel.payload.view(parcel.packer.wire_dtype)))
        for part, (parcel, pending) in enumerate(zip(parcels, pendings, strict=True)):
            with journey.clock.stage("travel", part):
                pending.wait()
            with journey.clock.stage("decode", part):
                parcel.decode(parcel.payload.unsqueeze(0))

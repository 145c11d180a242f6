"""Route allreduce: payloads add as floats inside the group's own ring all-reduce."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.coders.base import Merge, Packer
from thinwire.groups.base import Pending, sum_bytes
from thinwire.routes.base import Journey, Message, Parcel, Route


class AllReduce(Route):
    """One all-reduce per parcel; while it travels, the next parcel is encoded and the one before decoded.

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
        travelling: tuple[Parcel, Pending, int] | None = None
        for part, parcel in enumerate(parcel for message in messages for parcel in message):
            with journey.clock.stage("encode", part):
                parcel.encode()
            with journey.clock.stage("travel", part):
                pending = journey.group.sum_(parcel.payload.view(parcel.packer.wire_dtype))
            if travelling is not None:
                _arrive(*travelling, journey)
            travelling = parcel, pending, part
        if travelling is not None:
            _arrive(*travelling, journey)


def _arrive(parcel: Parcel, pending: Pending, part: int, journey: Journey) -> None:
    with journey.clock.stage("travel", part):
        pending.wait()
    with journey.clock.stage("decode", part):
        parcel.decode(parcel.payload.unsqueeze(0))

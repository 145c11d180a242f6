"""Route allreduce: payloads add as floats inside the group's own ring all-reduce."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from thinwire.codecs.coders.base import Merge, Packer
from thinwire.groups.base import Pending, all_reduce_bytes
from thinwire.routes.base import Journey, Message, P, Route, Trip


class AllReduce(Route):
    """One all-reduce per parcel.

    Sums depend on where a value lies in its buffer: bits may change when the buckets do.
    """

    name = "allreduce"
    takes = frozenset({Merge.SUM})
    in_place = True

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return packer.payload_bytes

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return all_reduce_bytes(self.payload_bytes(packer, world), world)

    def messages(self, lanes: Sequence[Sequence[P]]) -> list[list[P]]:
        """Every parcel by itself: putting several into one buffer would be a copy."""
        return [[parcel] for message in super().messages(lanes) for parcel in message]

    def send(self, message: Message, index: int, journey: Journey) -> Trip:
        (parcel,) = message
        with journey.clock.time("travel", index):
            sums = parcel.payload.view(parcel.packer.wire_dtype)
            return _Trip(parcel.payload, journey.group.all_reduce(sums), index, journey)


class _Trip(Trip):
    def __init__(self, payload: Tensor, pending: Pending, index: int, journey: Journey) -> None:
        self.payload, self.pending, self.index, self.journey = payload, pending, index, journey

    def arrive(self) -> Iterator[Tensor]:
        with self.journey.clock.time("travel", self.index):
            self.pending.wait()
        yield self.payload.unsqueeze(0)

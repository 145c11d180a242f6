"""What a route is: which merges it takes, what it makes a rank send, and how payloads become means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from thinwire.clock import Clock
from thinwire.codec import BoundCodec, Codec
from thinwire.coders.base import Merge
from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.scratch import Scratch

ALIGN = 8  # pieces of a shared message start on multiples of this many bytes


@dataclass(frozen=True)
class Parcel:
    """One lane on its way: what was agreed, what it sends, and where the mean goes."""

    bound: BoundCodec
    agreed: Tensor
    payload: Tensor
    x: Tensor

    def decode(self, sums: Tensor) -> None:
        self.bound.decode(sums, self.agreed, self.x)


@dataclass(frozen=True)
class Journey:
    """What a route needs besides the parcels."""

    group: Group
    scratch: Scratch
    clock: Clock


class Route(ABC):
    """How payloads travel and merge. All parcels of one call share the messages."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[Merge]]

    def check(self, codec: Codec) -> None:
        """Refuses codecs whose payloads this route cannot merge."""
        if codec.merge not in self.takes:
            raise PlanError(
                f'{codec} payloads merge by {codec.merge.value}, and route "{self.name}" takes only '
                f'{", ".join(sorted(m.value for m in self.takes))}: use route "{default_route_name(codec)}"'
            )

    @abstractmethod
    def payload_bytes(self, bound: BoundCodec) -> int:
        """Size of the buffer a lane encodes into, padding included."""

    @abstractmethod
    def sent_bytes(self, bounds: Sequence[BoundCodec]) -> int:
        """What one rank sends for these lanes, beyond agreeing; exact."""

    @abstractmethod
    def reduce(self, parcels: Sequence[Parcel], journey: Journey) -> None:
        """Sends all parcels and writes the means."""


def default_route_name(codec: Codec) -> str:
    """The route a codec takes when nobody says otherwise."""
    if codec.merge is Merge.SUM:
        return "allreduce"
    return "sharded" if codec.merge is Merge.INT and codec.shardable else "allgather"


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN

"""What a route is: which merges it takes, what it makes a rank send, and how payloads become means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from thinwire.clock import Clock
from thinwire.codec import Codec
from thinwire.coders.base import Merge, Packer
from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.scratch import Scratch


class Parcel(Protocol):
    """One part of a lane on its way: the bytes it sends, and what is done with them, in this order."""

    packer: Packer
    payload: Tensor

    def encode(self) -> None:
        """Fills the payload."""

    def keep(self) -> None:
        """Takes note of what the payload does not carry; it must be intact and may be on its way."""

    def merge(self, payloads: Tensor, sums: Tensor) -> None:
        """Adds up the payloads of all ranks."""

    def decode(self, sums: Tensor) -> None:
        """Merged payloads (or, if they do not merge, those of all ranks) to the mean."""


@dataclass(frozen=True)
class Journey:
    """What a route needs besides the parcels."""

    group: Group
    scratch: Scratch
    clock: Clock


Message = Sequence[Parcel]


class Route(ABC):
    """How payloads travel and merge: messages one behind the other, so that work and travel overlap."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[Merge]]
    in_place: ClassVar[bool] = (
        False  # True: sums arrive where the payload was, so it may be the gradient itself
    )

    def check(self, codec: Codec) -> None:
        """Refuses codecs whose payloads this route cannot merge."""
        if codec.merge not in self.takes:
            raise PlanError(
                f'{codec} payloads merge by {codec.merge.value}, and route "{self.name}" takes only '
                f'{", ".join(sorted(m.value for m in self.takes))}: use route "{default_route_name(codec)}"'
            )

    @abstractmethod
    def payload_bytes(self, packer: Packer, world: int) -> int:
        """Size of the buffer a part encodes into, padding included."""

    @abstractmethod
    def sent_bytes(self, packer: Packer, world: int) -> int:
        """What one rank sends for a part, beyond agreeing; exact."""

    @abstractmethod
    def reduce(self, messages: Sequence[Message], journey: Journey) -> None:
        """Encodes and sends all parcels and writes the means; the parcels of a message travel together."""


def default_route_name(codec: Codec) -> str:
    """The route a codec takes when nobody says otherwise."""
    if codec.merge is Merge.SUM:
        return "allreduce"
    return "sharded" if codec.merge is Merge.INT else "allgather"


def encode_all(message: Message, clock: Clock, part: int) -> None:
    with clock.stage("encode", part):
        for parcel in message:
            parcel.encode()


def keep_all(message: Message, clock: Clock, part: int) -> None:
    with clock.stage("encode", part):
        for parcel in message:
            parcel.keep()

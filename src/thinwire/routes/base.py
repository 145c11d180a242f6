"""What a route is: which merges it takes, what it makes a rank send, and how payloads become means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from thinwire.clock import Clock
from thinwire.codec import Codec
from thinwire.coders.base import Merge, Packer
from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.key import Key
from thinwire.scratch import Scratch

ALIGN = 8  # pieces of a shared message start on multiples of this many bytes


@dataclass
class Parcel:
    """One part of a lane on its way: where its numbers lie, what was agreed, and the bytes it sends."""

    packer: Packer
    x: Tensor
    agreed: Tensor
    key: Key
    payload: Tensor
    make: Callable[[], None] | None = None  # makes the numbers of this part, if a stage works part by part
    unmake: Callable[[], None] | None = None  # and takes the decoded ones back to gradients
    encoded: bool = field(default=False, init=False)

    def encode(self) -> None:
        """Fills the payload, once; padding is zero."""
        if not self.encoded:
            if self.make is not None:
                self.make()
            self.payload[self.packer.num_granules * self.packer.granule_bytes :] = 0
            self.packer.encode(self.x, self.agreed, self.key, self.payload)
            self.encoded = True

    def merge(self, payloads: Tensor, sums: Tensor) -> None:
        self.packer.merge(payloads, self.agreed, sums)

    def decode(self, sums: Tensor) -> None:
        self.packer.decode(sums, self.agreed, self.x)
        if self.unmake is not None:
            self.unmake()


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
    return "sharded" if codec.merge is Merge.INT and codec.shardable else "allgather"


def encode_all(message: Message, clock: Clock, part: int) -> None:
    with clock.stage("encode", part):
        for parcel in message:
            parcel.encode()


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN

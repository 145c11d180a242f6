"""What a route is: which merges it takes, what it makes a rank send, and how payloads travel and merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar, Protocol, TypeVar

from torch import Tensor

from thinwire.clock import Clock
from thinwire.codecs.codec import Codec
from thinwire.codecs.coders.base import Merge, Packer
from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.tensors.scratch import Scratch


class Parcel(Protocol):
    """What a route sees of a part of a lane: its bytes, and what is needed to merge them."""

    @property
    def packer(self) -> Packer: ...

    @property
    def payload(self) -> Tensor: ...

    @property
    def agreed(self) -> Tensor: ...


P = TypeVar("P", bound=Parcel)
Message = Sequence[Parcel]  # parcels of several lanes that travel together


@dataclass(frozen=True)
class Journey:
    """What a route needs besides the parcels."""

    group: Group
    scratch: Scratch
    clock: Clock


class Trip(ABC):
    """One message on its way. Its buffers are its own, because several trips are under way at once."""

    def merge(self) -> None:  # noqa: B027 - many trips have one leg only
        """Between two legs: waits for the first, merges what came, and starts the second."""

    @abstractmethod
    def arrive(self) -> Iterator[Tensor]:
        """Waits for the end; gives, parcel by parcel, what its packer decodes. Decode it before the next."""


class Route(ABC):
    """How payloads travel and merge: messages one behind the other, so that work and travel overlap."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[Merge]]
    in_place: ClassVar[bool] = False  # True: sums arrive where the payload was, even in the gradient itself

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

    def messages(self, lanes: Sequence[Sequence[P]]) -> list[list[P]]:
        """The parcels of lanes as messages: the first parts of all lanes travel together, then the second."""
        rounds = zip_longest(*lanes)
        return [[parcel for parcel in parcels if parcel is not None] for parcels in rounds]

    @abstractmethod
    def send(self, message: Message, index: int, journey: Journey) -> Trip:
        """Starts the first leg of a message; `index` counts the messages of a bucket."""


def default_route_name(codec: Codec) -> str:
    """The route a codec takes when nobody says otherwise."""
    if codec.merge is Merge.SUM:
        return "allreduce"
    return "sharded" if codec.merge is Merge.INT else "allgather"

"""What a stage is (options only) and what it becomes once bound to a lane."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from thinwire.coders.base import Coder, Place
from thinwire.spec import Layout, Spec

# What stages remember, by tensor and by name: bases, samples. The same on all ranks, but for names that begin
# with OWNED: those hold numbers on the tensor's owner and zeros elsewhere.
Notes = dict[str, dict[str, Tensor]]
OWNED = "owned "
NOTHING: Mapping[str, Tensor] = MappingProxyType({})


def owner(name: str, world: int) -> int:
    """The rank that keeps the OWNED notes of a tensor; it depends on nothing but the tensor's name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") % world


def facts(note: Mapping[str, Tensor]) -> dict[str, float]:
    """What a person may want to know of a tensor's notes: single numbers; names with "_" are private."""
    return {what: float(t) for what, t in note.items() if t.dim() == 0 and not what.startswith("_")}


class Stage(ABC):  # noqa: B024 - its two kinds have the abstract methods
    """A link before the coder. Frozen options, no data."""

    memory: ClassVar[str] = "none"  # what should hold back what this link drops
    fixed: ClassVar[bool] = False  # True: one orthonormal map for ever, so that memories may live behind it
    learns: ClassVar[bool] = False  # True: it must see the mean gradient itself, so it must be the first link

    def phase(self, step: int, note: Mapping[str, Tensor] = NOTHING) -> str:
        """Which of its phases a step belongs to: a pure function, so that all ranks and all plans agree.

        `step` counts the steps whose means were finite. `note` is what all ranks remember of a tensor: a
        stage whose sizes depend on it says so here.
        """
        return ""

    def refuses(self, spec: Spec) -> str | None:
        """Why a tensor must stay dense under this stage, or None."""
        return None

    def eased(self, share: float) -> Stage | None:
        """This stage with a share (0 to 1) of its strength, 0 the gentlest; None: it has no strength."""
        return None


class LinearStage(Stage):
    """A stage whose decoding is linear and needs only what all ranks share: it runs once, on the sum."""

    def eased(self, share: float) -> LinearStage | None:
        return None

    @abstractmethod
    def bind(self, layout: Layout, place: Place, phase: str, notes: Notes) -> BoundStage:
        """Makes the tables for one lane in one phase. In a plan `notes` is empty, and sizes must be right."""


class SelectingStage(Stage):
    """A stage whose decoding needs what only a rank's payload carries (indices): it wraps the coder."""

    @property
    def theta(self) -> float | None:
        """The part of the numbers that it drops, None if that is not the same for all tensors."""
        return None

    def eased(self, share: float) -> SelectingStage | None:
        return None

    def at(self, phase: str) -> SelectingStage:
        """The stage that does this one's work in a phase: itself, unless its sizes change with the phase."""
        return self

    @abstractmethod
    def around(self, coder: Coder) -> Coder:
        """The coder that selects, and packs what was selected with the given one."""


class Chain(ABC):
    """Several links under one name, with options of their own. Frozen options, no data."""

    @property
    @abstractmethod
    def links(self) -> tuple[Stage, ...]:
        """The links it stands for."""


class BoundStage(ABC):
    """A linear stage bound to the tensors of a lane; `out` says how its results lie."""

    out: Layout
    offer_numel: int = 0  # float32 numbers that are added over all ranks before `forward`
    unit: float = 1.0  # the loss scale of the gradients at hand; what is remembered must not depend on it

    def offer(self, x: Tensor) -> Tensor:
        """The numbers to add up over all ranks before `forward`."""
        return x.new_empty(0)

    @abstractmethod
    def forward(self, x: Tensor, agreed: Tensor) -> Tensor:
        """The numbers the next link sees, laid out as `out`. Must not change x."""

    @abstractmethod
    def inverse(self, y: Tensor, x: Tensor) -> None:
        """Writes the numbers y stands for into the tensors of x. Linear: it may run once, on a sum."""

    def learn(self, y: Tensor, x: Tensor) -> None:  # noqa: B027 - most stages learn nothing
        """Looks at the mean, as this stage gives it (y) and decoded (x); called only when it is finite."""


class RangedStage(BoundStage):
    """A bound stage that can work on a range of its results, so that a part is made while another travels."""

    @abstractmethod
    def places(self) -> Sequence[int]:
        """The numbers of `out`, counted end to end, at which it may be cut, in order."""

    @abstractmethod
    def prepare(self, agreed: Tensor) -> None:
        """Takes what was agreed; the ranges follow."""

    @abstractmethod
    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        """The numbers first..last of `out`, into y, which has room for them alone."""

    @abstractmethod
    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        """Writes what the numbers first..last, which y is, stand for into the tensors of x."""

    def forward(self, x: Tensor, agreed: Tensor) -> Tensor:
        self.prepare(agreed)
        y = x.new_empty(self.out.numel)
        self.forward_range(x, y, 0, self.out.numel)
        return y

    def inverse(self, y: Tensor, x: Tensor) -> None:
        self.inverse_range(y, x, 0, self.out.numel)

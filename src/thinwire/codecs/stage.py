"""A stage (options only), what it becomes once bound to a lane, and the stage that changes nothing."""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codecs.coder import Builder, ChainLink, Coder, Context, Packer
from thinwire.devices import FINITE, StepVerdict, is_host
from thinwire.tensors import Key, Layout, Spec

# What stages have learnt, by tensor and by name: bases, samples. The same on all ranks, but for names that
# begin with OWNED: those hold numbers on the tensor's owner and zeros elsewhere.
Learned = dict[str, dict[str, Tensor]]
OWNED = "owned "
NOTHING: Mapping[str, Tensor] = MappingProxyType({})


def owner(name: str, world: int) -> int:
    """The rank that keeps what is OWNED of a tensor; it depends on nothing but the tensor's name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") % world


def facts(known: Mapping[str, Tensor]) -> dict[str, float]:
    """What a person may want to know of what was learnt: single numbers; names with "_" are private."""
    return {what: float(t) for what, t in known.items() if t.dim() == 0 and not what.startswith("_")}


class Stage(ChainLink):
    """A link before the coder: values to values."""

    fixed: ClassVar[bool] = False  # True: one orthonormal map for ever, so error feedback may live behind it
    learns: ClassVar[bool] = False  # True: it must see the mean gradient itself, so it must be the first link
    draws_alike: ClassVar[bool] = False  # True: all ranks draw the same random numbers, from the same seed

    def phase(self, step: int, known: Mapping[str, Tensor] = NOTHING) -> str:
        """Which of its phases a step belongs to: a pure function, so that all ranks and all plans agree.

        `step` counts the steps whose means were finite. `known` is what all ranks have learnt of a tensor: a
        stage whose sizes depend on it says so here.
        """
        return ""

    def refuses(self, spec: Spec) -> str | None:
        """Why a tensor must stay dense under this stage, or None."""
        return None

    def at_level(self, level: float) -> Stage | None:
        """This stage at a compression level from 0 (least) to 1 (as it is); None: it has only one."""
        return None


class LinearStage(Stage):
    """A stage whose decoding is linear and needs only what all ranks share: it runs once, on the sum."""

    def at_level(self, level: float) -> LinearStage | None:
        return None

    @abstractmethod
    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        """Makes the tables for one lane in one phase. In a plan nothing is learnt; sizes must be right."""

    def with_behind(self, stage: LinearStage) -> LinearStage | None:
        """One stage that does what this one does and then `stage`, if there is one: a pass less."""
        return None

    def join(self, builder: Builder) -> None:
        builder.add_linear(self)


class SelectingStage(Stage):
    """A stage whose decoding needs what only a rank's payload carries (indices): it packs with the coder."""

    @property
    def theta(self) -> float | None:
        """The part of the numbers that it drops, None if that is not the same for all tensors."""
        return None

    def at_level(self, level: float) -> SelectingStage | None:
        return None

    @abstractmethod
    def check(self, coder: Coder) -> None:
        """Refuses a coder that cannot pack what is selected."""

    @abstractmethod
    def bind(self, coder: Coder, layout: Layout, context: Context, phase: str) -> Packer:
        """The packer that selects, and packs what was selected with the coder; payloads are gathered."""

    def join(self, builder: Builder) -> None:
        builder.add_selecting(self)


class Chain(ChainLink):
    """Several links under one name, with options of their own."""

    @property
    @abstractmethod
    def short_for(self) -> tuple[ChainLink, ...]:
        """The links it stands for."""

    def join(self, builder: Builder) -> None:
        for link in self.short_for:
            link.join(builder)


class BoundStage(ABC):
    """A linear stage bound to the tensors of a lane; `out` says how its results lie."""

    out: Layout
    num_summands: int = 0  # float32 numbers that are added over all ranks before `forward`
    loss_scale: float = 1.0  # of the gradients at hand; what is learnt must not depend on it
    measured: bool = False  # whether somebody will ask for `tallies`
    key: Key = Key(0, 0, 0).shared  # of the step at hand; the same on all ranks

    @property
    def by_parts(self) -> RangedStage | None:
        """Itself, if it can work on a range of its results."""
        return None

    def summands(self, x: Tensor) -> Tensor:
        """The numbers to add up over all ranks before `forward`."""
        return x.new_empty(0)

    @abstractmethod
    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        """The numbers the next link sees, laid out as `out`. Must not change x."""

    @abstractmethod
    def inverse(self, y: Tensor, x: Tensor) -> None:
        """Writes the numbers y stands for into the tensors of x. Linear: it may run once, on a sum."""

    def tallies(self) -> dict[str, dict[str, float]]:
        """What a person may want to know of the numbers made last: by tensor and by name."""
        return {}

    def learn(self, y: Tensor, x: Tensor, verdict: StepVerdict = FINITE) -> None:  # noqa: B027 - most learn nothing
        """Looks at the mean, as this stage gives it (y) and decoded (x), which counts if the verdict says so.

        Not called where it is known that it is not finite.
        """


class RangedStage(BoundStage):
    """A bound stage that can work on a range of its results, so that a part is made while another travels."""

    @property
    def by_parts(self) -> RangedStage:
        return self

    @abstractmethod
    def cut_points(self) -> Sequence[int]:
        """The numbers of `out`, counted end to end, at which it may be cut, in order."""

    @abstractmethod
    def prepare(self, shared: Tensor) -> None:
        """Takes what all ranks share; the ranges follow."""

    @abstractmethod
    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        """The numbers first..last of `out`, into y, which has room for them alone."""

    @abstractmethod
    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        """Writes what the numbers first..last, which y is, stand for into the tensors of x."""

    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        self.prepare(shared)
        y = x.new_empty(self.out.numel)
        self.forward_range(x, y, 0, self.out.numel)
        return y

    def inverse(self, y: Tensor, x: Tensor) -> None:
        self.inverse_range(y, x, 0, self.out.numel)


_EVEN = 64  # elements: parts end on whole granules of every float format
_HALF = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True)
class Identity(LinearStage):
    """Nothing changes, for ever. No text names it: it stands where a chain has nothing else (codec.py)."""

    fixed = True

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundIdentity(layout)


class BoundIdentity(RangedStage):
    """The tensors end to end. Dense coders send 16-bit gradients as they are, others as float32."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.out = Layout.packed(
            spec if spec.dtype in _HALF else replace(spec, dtype=torch.float32) for spec in layout.specs
        )

    def cut_points(self) -> range:
        return range(0, self.out.numel, _EVEN)

    def prepare(self, shared: Tensor) -> None:
        pass

    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        for there, here in self._pairs(first, last):
            y[here] = x[there]

    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        for there, here in self._pairs(first, last):
            x[there] = y[here]

    def _pairs(self, first: int, last: int) -> Iterator[tuple[slice, slice]]:
        """Where the numbers first..last lie in the lane and among themselves."""
        for there, here in zip(self.layout.slices, self.out.slices, strict=True):
            low, high = max(first, here.start), min(last, here.stop)
            if low < high:
                shift = there.start - here.start
                yield slice(low + shift, high + shift), slice(low - first, high - first)


def exponent(x: Tensor) -> int:
    """e with |x| < 2^e, as near as the dtype's normal numbers allow; 0 of zeros and of what is not finite.

    >>> exponent(torch.tensor([-3e20, 1.0])), exponent(torch.zeros(2))
    (69, 0)
    """
    most = 1 - round(math.log2(torch.finfo(x.dtype).smallest_normal))
    largest = float(x.abs().max()) if x.numel() else 0.0
    return max(-most, min(most, math.frexp(largest)[1])) if math.isfinite(largest) else 0


def near_one(x: Tensor) -> Tensor:
    """x times the power of two that brings its largest number to 1/2 .. 1."""
    if is_host(x.device):
        return x * 2.0 ** -exponent(x)
    most = 1 - round(math.log2(torch.finfo(x.dtype).smallest_normal))
    largest = x.abs().amax()
    power = torch.frexp(largest).exponent.clamp(-most, most) * largest.isfinite()
    return x * ((1023 - power.long()) << 52).view(torch.float64).to(x.dtype)  # 2^-power, exactly

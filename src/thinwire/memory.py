"""Memories: what a rank holds back from one step to the next (error feedback, momentum correction)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from thinwire.errors import CodecError, PlanError
from thinwire.options import (
    number_or_off,
    option,
    option_texts,
    read_options,
    show_number_or_off,
    show_options,
    show_yes_or_no,
    yes_or_no,
)
from thinwire.spec import Layout


class Memory(ABC):
    """Invariant, tensor by tensor: in + old = sent + new. `after` stages, `commit` makes it true."""

    share: float = 1.0  # of its codec's strength in the step under way; the engine sets it

    @abstractmethod
    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        """Adds what was held back to the tensors of x, in place. `unit` is the loss scale of x."""

    @abstractmethod
    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        """Stages x - own: what was meant to be sent less what was sent."""

    @abstractmethod
    def commit(self, names: tuple[str, ...]) -> None:
        """Believes what was staged for these tensors; staged values of others are dropped."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What is held back, by tensor name."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` gave."""


class NoMemory(Memory):
    """Holds nothing back: right for unbiased codecs, whose errors average out."""

    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        pass

    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        pass

    def commit(self, names: tuple[str, ...]) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        pass


class Residual(Memory):
    """Error feedback: p = g + e; send Q(p); e = p - Q(p).

    Kept in unscaled units, so that a GradScaler may change the loss scale between steps.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}
        self.staged: dict[str, Tensor] = {}

    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        for name, piece in zip(layout.names, layout.slices, strict=True):
            if name in self.kept:
                x[piece].add_(self.kept[name], alpha=unit)

    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        for name, piece in zip(layout.names, layout.slices, strict=True):
            target = self.staged.get(name)
            if target is None or target.numel() != piece.stop - piece.start:
                target = self.staged[name] = torch.empty_like(x[piece])
            torch.sub(x[piece], own[piece], out=target)
            if unit != 1.0:
                target.div_(unit)

    def commit(self, names: tuple[str, ...]) -> None:
        for name in names:  # swap: the old buffer is written to in the next step
            old = self.kept.get(name)
            self.kept[name] = self.staged.pop(name)
            if old is not None:
                self.staged[name] = old

    def state(self) -> dict[str, Tensor]:
        return {name: kept.clone() for name, kept in self.kept.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.kept = {name: kept.clone() for name, kept in state.items()}
        self.staged = {}


@dataclass(frozen=True)
class NoOptions:
    """For memories that cannot be tuned."""


@dataclass(frozen=True)
class MomentumOptions:
    """How the momentum memory corrects: factor m, Nesterov's form, the norm gradients are cut to, masking."""

    factor: float = option(0.9, float, "a number from 0 to less than 1", repr)
    nesterov: bool = option(False, yes_or_no, '"on" or "off"', show_yes_or_no)
    clip: float = option(math.inf, number_or_off, 'a positive L2 norm, or "off"', show_number_or_off)
    mask: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)

    def __post_init__(self) -> None:
        if not 0 <= self.factor < 1:
            raise CodecError(f"momentum: factor={self.factor:g} must be at least 0 and less than 1")
        if not self.clip > 0:
            raise CodecError(f"momentum: clip={self.clip:g} must be positive; use clip=off for no clipping")


@dataclass
class Held:
    """What the momentum memory holds of one tensor."""

    u: Tensor  # velocity: the momentum of this worker's own gradients
    v: Tensor  # all velocities that were not sent yet

    @classmethod
    def like(cls, x: Tensor) -> Held:
        return cls(torch.zeros_like(x), torch.zeros_like(x))


class Momentum(Memory):
    """DGC's momentum correction: momentum is applied here, before selecting, and never again.

    1. g = g * min(1, clip * N^-1/2 / ||g||)    local clipping, tensor by tensor
    2. u = m u + g; v = v + u                   or Nesterov: u = m (u + g); v = v + u + g
    3. send Q(v)
    4. v = v - Q(v); u = 0 where Q(v) != 0      momentum factor masking

    Masking keeps stale momentum from being sent. It costs step length where much is sent: of a constant
    gradient g, 9.1 g is sent a step at 1 % kept, 5.4 g at 6.3 %, 2.25 g at 25 % and g if everything is sent,
    against 10 g of momentum SGD (m = 0.9). The warm-up of dgc is the published algorithm, so it has
    such short steps. A control must not shorten them: while it eases a codec (`share` < 1) nothing is masked,
    and at share 0 this is momentum SGD. `mask=off` never masks: for codecs that send every element.

    Invariant: u + old v = sent + new v. Kept in unscaled units, as residuals are.
    """

    def __init__(self, options: MomentumOptions = MomentumOptions(), world: int = 1) -> None:
        self.options, self.limit = options, options.clip / math.sqrt(world)
        self.kept: dict[str, Held] = {}
        self.staged: dict[str, Held] = {}

    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        for name, piece in zip(layout.names, layout.slices, strict=True):
            g, old, new = x[piece], self.kept.get(name), self.staged.get(name)
            if old is None:
                old = Held.like(g)
            if new is None or new.u.numel() != g.numel():
                new = self.staged[name] = Held.like(g)
            self._accumulate(g, old, new, unit)

    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        for name, piece in zip(layout.names, layout.slices, strict=True):
            new = self.staged[name]
            torch.sub(x[piece], own[piece], out=new.v)
            if unit != 1.0:
                new.v.div_(unit)
            if self.options.mask and self.share == 1:
                new.u.masked_fill_(own[piece] != 0, 0.0)

    def commit(self, names: tuple[str, ...]) -> None:
        for name in names:  # swap: the old buffers are written to in the next step
            old = self.kept.get(name)
            self.kept[name] = self.staged.pop(name)
            if old is not None:
                self.staged[name] = old

    def state(self) -> dict[str, Tensor]:
        velocities = {_VELOCITY + name: held.u.clone() for name, held in self.kept.items()}
        return velocities | {_UNSENT + name: held.v.clone() for name, held in self.kept.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        names = [name.removeprefix(_VELOCITY) for name in state if name.startswith(_VELOCITY)]
        self.kept = {
            name: Held(state[_VELOCITY + name].clone(), state[_UNSENT + name].clone()) for name in names
        }
        self.staged = {}

    def _accumulate(self, g: Tensor, old: Held, new: Held, unit: float) -> None:
        """Steps 1 and 2: g becomes the new v, in units of the loss scale; the new u is staged."""
        factor = self._shrinking(g, unit) / unit
        if factor != 1.0:
            g.mul_(factor)
        if self.options.nesterov:
            torch.add(old.u, g, out=new.u).mul_(self.options.factor)
            g.add_(new.u).add_(old.v)
        else:
            torch.add(g, old.u, alpha=self.options.factor, out=new.u)
            torch.add(old.v, new.u, out=g)
        if unit != 1.0:
            g.mul_(unit)

    def _shrinking(self, g: Tensor, unit: float) -> float:
        """min(1, limit / ||g||); float64, because the square of a large gradient is no float32."""
        if math.isinf(self.limit):
            return 1.0
        norm = float(torch.linalg.vector_norm(g, dtype=torch.float64)) / unit
        return self.limit / norm if norm > self.limit else 1.0


_VELOCITY, _UNSENT = "velocity ", "unsent "


def tensor_of(key: str, kind: str) -> str:
    """The tensor that an entry of a memory's state is of; `kind` is the memory's text."""
    if memory_name(kind) != "momentum":
        return key
    return key.removeprefix(_VELOCITY) if key.startswith(_VELOCITY) else key.removeprefix(_UNSENT)


@dataclass(frozen=True)
class Kind:
    """A memory by name: its options, the option a bare value is for, and how it is made for N workers."""

    options: type
    make: Callable[[Any, int], Memory]
    bare: str | None = None


MEMORIES: Mapping[str, Kind] = MappingProxyType(
    {
        "none": Kind(NoOptions, lambda options, world: NoMemory()),
        "residual": Kind(NoOptions, lambda options, world: Residual()),
        "momentum": Kind(MomentumOptions, Momentum, bare="factor"),
    }
)


def make_memory(text: str, world: int = 1) -> Memory:
    """The memory a text asks for: a name, with options as in a codec text ("momentum:0.9,nesterov=on")."""
    kind, options = _read(text)
    return kind.make(options, world)


def memory_text(text: str) -> str:
    """The one way to write a memory: ranks compare these texts, and states are kept under them.

    >>> memory_text("momentum: factor=0.90, clip=off")
    'momentum'
    """
    _, options = _read(text)
    shown = show_options(options)
    return memory_name(text) + (f":{shown}" if shown else "")


def memory_options(text: str) -> Any:
    """The options of the memory a text asks for."""
    return _read(text)[1]


def memory_name(text: str) -> str:
    return text.partition(":")[0].strip()


def _read(text: str) -> tuple[Kind, Any]:
    name = memory_name(text)
    if name not in MEMORIES:
        raise PlanError(f'there is no memory "{name}": known are {", ".join(MEMORIES)}')
    kind, place = MEMORIES[name], f'memory "{text}"'
    texts = option_texts(text.partition(":")[2], kind.bare, name, place)
    return kind, kind.options(**read_options(kind.options, texts, f"{place}: {name}"))

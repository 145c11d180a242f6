"""Memories: what a rank holds back from one step to the next (error feedback, momentum correction)."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from thinwire.errors import CodecError
from thinwire.names import check_name
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
from thinwire.spec import Piece

H = TypeVar("H")


class Memory(ABC):
    """Invariant, tensor by tensor: in + old = sent + new. `after` stages, `commit` makes it true.

    A step is believed as a whole or not at all: what was staged in a step that is skipped was never sent.
    `unit` is the loss scale of x; what is held back does not depend on it.
    """

    whole_tensors: bool = False  # True: `before` must see all elements of a tensor at once

    share: float = 1.0  # of its codec's strength in the step under way; the engine sets it

    @abstractmethod
    def before(self, x: Tensor, pieces: Sequence[Piece], unit: float) -> None:
        """Adds what was held back to these pieces of x, in place."""

    @abstractmethod
    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], unit: float) -> None:
        """Stages x - own: what was meant to be sent less what was sent. `own` begins at element
        `base` of x."""

    @abstractmethod
    def commit(self) -> None:
        """Believes what was staged since the last commit."""

    @abstractmethod
    def forget(self) -> None:
        """Drops what was staged since the last commit."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What is held back, by tensor name."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` gave."""


class NoMemory(Memory):
    """Holds nothing back: right for unbiased codecs, whose errors average out."""

    def before(self, x: Tensor, pieces: Sequence[Piece], unit: float) -> None:
        pass

    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], unit: float) -> None:
        pass

    def commit(self) -> None:
        pass

    def forget(self) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        pass


def is_finite(x: Tensor) -> bool:
    """One pass and no temporary: NaN is both the least and the greatest of numbers."""
    return x.numel() == 0 or all(bool(torch.isfinite(end)) for end in x.aminmax())


class Pages(Generic[H]):
    """What is held of every tensor, twice: as it is believed, and as the step under way would leave it."""

    def __init__(self, blank: Callable[[Tensor, int], H]) -> None:
        self.kept: dict[str, H] = {}
        self._blank = blank  # makes room for a tensor of so many elements, beside an example of them
        self._spare: dict[str, H] = {}
        self._fresh: dict[str, H] = {}

    def stage(self, name: str, numel: int, like: Tensor) -> H:
        """Room for what the step leaves of a tensor; the same room all through a step."""
        found = self._fresh.get(name)
        if found is None:
            spare = self._spare.pop(name, None)
            found = self._fresh[name] = self._blank(like, numel) if spare is None else spare
        return found

    def commit(self) -> None:
        for name, found in self._fresh.items():  # swap: the old room is written to in the next step
            if name in self.kept:
                self._spare[name] = self.kept[name]
            self.kept[name] = found
        self._fresh = {}

    def forget(self) -> None:
        self._spare |= self._fresh
        self._fresh = {}

    def load(self, kept: dict[str, H]) -> None:
        self.kept, self._spare, self._fresh = kept, {}, {}


@dataclass(frozen=True)
class ResidualOptions:
    """Whether a step that is not finite can be undone: it takes room for a second copy of the residuals."""

    undo: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)


class Residual(Memory):
    """Error feedback: p = g + e; send Q(p); e = p - Q(p).

    Kept in unscaled units, so that a GradScaler may change the loss scale between steps. With `undo=off` the
    new e takes the place of the old one at once, half the memory: of a step that GradScaler skips, what was
    sent of finite tensors is then lost; a tensor that is not finite on this rank still keeps its e.
    """

    def __init__(self, options: ResidualOptions = ResidualOptions(), world: int = 1) -> None:
        self.undo = options.undo
        self.pages: Pages[Tensor] = Pages(lambda like, numel: like.new_zeros(numel))

    def before(self, x: Tensor, pieces: Sequence[Piece], unit: float) -> None:
        for piece in pieces:
            if piece.name in self.pages.kept:
                x[piece.where].add_(self.pages.kept[piece.name][piece.elements], alpha=unit)

    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], unit: float) -> None:
        for piece in pieces:
            meant = x[piece.where]
            if not self.undo and not is_finite(meant):
                continue
            target = self._room(piece, x)[piece.elements]
            torch.sub(meant, own[piece.moved(base)], out=target)
            if unit != 1.0:
                target.div_(unit)

    def _room(self, piece: Piece, like: Tensor) -> Tensor:
        if self.undo:
            return self.pages.stage(piece.name, piece.numel, like)
        if piece.name not in self.pages.kept:
            self.pages.kept[piece.name] = like.new_zeros(piece.numel)
        return self.pages.kept[piece.name]

    def commit(self) -> None:
        self.pages.commit()

    def forget(self) -> None:
        self.pages.forget()

    def state(self) -> dict[str, Tensor]:
        return {name: kept.clone() for name, kept in self.pages.kept.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.pages.load({name: kept.clone() for name, kept in state.items()})


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

    def piece(self, elements: slice) -> Held:
        return Held(self.u[elements], self.v[elements])


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
        self.whole_tensors = not math.isinf(self.limit)
        self.pages: Pages[Held] = Pages(lambda like, n: Held(like.new_empty(n), like.new_empty(n)))

    def before(self, x: Tensor, pieces: Sequence[Piece], unit: float) -> None:
        for piece in pieces:
            g, kept = x[piece.where], self.pages.kept.get(piece.name)
            old = (
                Held(torch.zeros_like(g), torch.zeros_like(g)) if kept is None else kept.piece(piece.elements)
            )
            new = self.pages.stage(piece.name, piece.numel, x).piece(piece.elements)
            self._accumulate(g, old, new, unit)

    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], unit: float) -> None:
        for piece in pieces:
            new = self.pages.stage(piece.name, piece.numel, x).piece(piece.elements)
            sent = own[piece.moved(base)]
            torch.sub(x[piece.where], sent, out=new.v)
            if unit != 1.0:
                new.v.div_(unit)
            if self.options.mask and self.share == 1:
                new.u.masked_fill_(sent != 0, 0.0)

    def commit(self) -> None:
        self.pages.commit()

    def forget(self) -> None:
        self.pages.forget()

    def state(self) -> dict[str, Tensor]:
        kept = self.pages.kept
        velocities = {_VELOCITY + name: held.u.clone() for name, held in kept.items()}
        return velocities | {_UNSENT + name: held.v.clone() for name, held in kept.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        names = [name.removeprefix(_VELOCITY) for name in state if name.startswith(_VELOCITY)]
        self.pages.load(
            {name: Held(state[_VELOCITY + name].clone(), state[_UNSENT + name].clone()) for name in names}
        )

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
        "residual": Kind(ResidualOptions, Residual),
        "momentum": Kind(MomentumOptions, Momentum, bare="factor"),
    }
)


def make_memory(text: str, world: int = 1) -> Memory:
    """The memory a text asks for: a name, with options as in a codec text ("momentum:0.9,nesterov=on")."""
    kind, options = _read(text)
    return kind.make(options, world)


def whole_tensors(text: str) -> bool:
    """True if a memory must see all elements of a tensor at once."""
    return make_memory(text).whole_tensors


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
    check_name("memory", text, MEMORIES)
    kind, place = MEMORIES[name], f'memory "{text}"'
    texts = option_texts(text.partition(":")[2], kind.bare, name, place)
    return kind, kind.options(**read_options(kind.options, texts, f"{place}: {name}"))

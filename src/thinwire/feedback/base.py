"""Error feedback: what a rank keeps from one step for the next, committed with the step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

from torch import Tensor

from thinwire.devices import StepVerdict
from thinwire.errors import PlanError
from thinwire.tensors import Piece

TensorState = dict[str, Tensor]  # the state of one tensor, by name


class StateBuffers:
    """Two copies of the state: `committed` counts; what is written into `new` counts after `commit`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.committed: dict[str, TensorState] = {}
        self._names = names
        self._spare: dict[str, TensorState] = {}
        self._fresh: dict[str, TensorState] = {}

    def old(self, piece: Piece) -> TensorState | None:
        """The committed state of these elements of a tensor; None: there is none yet."""
        held = self.committed.get(piece.name)
        return None if held is None else _cut(held, piece)

    def new(self, piece: Piece, like: Tensor) -> TensorState:
        """Buffers for the state after this step; the same ones all through a step."""
        held = self._fresh.get(piece.name)
        if held is None:
            spare = self._spare.pop(piece.name, {})
            held = self._fresh[piece.name] = spare or self._blank(piece, like)
        return _cut(held, piece)

    def in_place(self, piece: Piece, like: Tensor) -> TensorState:
        """The committed state, to be overwritten at once: such a step cannot be undone."""
        if piece.name not in self.committed:
            self.committed[piece.name] = self._blank(piece, like)
        return _cut(self.committed[piece.name], piece)

    def commit(self) -> None:
        for name, held in self._fresh.items():  # the old buffers are written to in the next step
            if name in self.committed:
                self._spare[name] = self.committed[name]
            self.committed[name] = held
        self._fresh = {}

    def select(self, verdict: StepVerdict, names: Iterable[str] | None = None) -> None:
        """What only the device knows: new state becomes the old one, there, if the verdict is against it."""
        for name in self._fresh if names is None else set(names).intersection(self._fresh):
            old = self.committed.get(name)
            for what, new in self._fresh[name].items():
                verdict.select(new, 0.0 if old is None else old[what])

    def forget(self, names: Iterable[str] | None = None) -> None:
        for name in list(self._fresh) if names is None else set(names).intersection(self._fresh):
            self._spare[name] = self._fresh.pop(name)

    def load(self, committed: Mapping[str, TensorState]) -> None:
        self.committed, self._spare, self._fresh = dict(committed), {}, {}

    def start_blank(self) -> None:
        """The next step writes to new buffers, full of zeros."""
        self._spare = {}

    def _blank(self, piece: Piece, like: Tensor) -> TensorState:
        return {what: like.new_zeros(piece.numel) for what in self._names}


def _cut(held: TensorState, piece: Piece) -> TensorState:
    return {what: tensor[piece.elements] for what, tensor in held.items()}


RATES_WAY_OUT = "call compressor.check_optimizer(optimizer) with the optimizer that updates it"


class Ownership(Enum):
    """To whom state belongs; it decides what a world of another size gets."""

    PER_RANK = "per rank"  # every rank has another, and their sum over the ranks is what counts
    OWNED = "owned"  # every element is held by the rank that owns it, and is zero on all others
    SHARED = "shared"  # the same on all ranks


@dataclass(frozen=True)
class Transmission:
    """A part of a lane as it was sent.

    `reconstruction` is what this rank's payload stands for. It begins at element `base` of `meant`.
    """

    meant: Tensor
    reconstruction: Tensor
    base: int
    pieces: Sequence[Piece]  # of `meant`
    loss_scale: float
    compression_level: float = 1.0  # of the codec, 0 in a dense start

    def of(self, piece: Piece) -> tuple[Tensor, Tensor]:
        """What was meant and what was sent of a piece."""
        return self.meant[piece.where], self.reconstruction[piece.moved(self.base)]


class ErrorFeedback(ABC):
    """Sees what a rank means to send (`before`), what it sent (`after`) and the mean (`received`).

    A step is committed as a whole or not at all: what a skipped step wrote was never sent.
    The state does not depend on the loss scale of the gradients.
    """

    state_kinds: ClassVar[Mapping[str, Ownership]] = MappingProxyType(
        {}
    )  # the state of every tensor, by name

    whole_tensors: bool = False  # True: `before` must see all elements of a tensor at once

    exact_mean: ClassVar[bool] = False  # True: it needs the mean of what all ranks sent, as it is

    adds: ClassVar[bool] = False  # True: `before` only adds its state, so another codec can send it

    rates: Mapping[str, float] = MappingProxyType({})  # the learning rate of every tensor in this step

    uses_rates: bool = False  # True: `rates` must be known

    norm: float | None = None  # of this rank's whole gradient in this step

    uses_norm: bool = False  # True: `norm` must be known before the first tensor of a step

    def __init__(self) -> None:
        self.buffers = StateBuffers(tuple(self.state_kinds))

    @abstractmethod
    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        """Adds the state to these pieces of x, in place."""

    @abstractmethod
    def after(self, sent: Transmission) -> None:
        """Keeps what was meant to be sent and was not."""

    def received(self, mean: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:  # noqa: B027
        """Sees the mean over all ranks, and may change it, on all ranks alike."""

    def rate(self, name: str) -> float:
        """The learning rate of a tensor; 1 where it does not matter."""
        if not self.uses_rates:
            return 1.0
        if name not in self.rates:
            raise PlanError(f"error feedback with lr=on needs the learning rate of {name}: {RATES_WAY_OUT}")
        return self.rates[name]

    def settle(self, verdict: StepVerdict) -> None:
        """The step is over: its state counts, or that of the step before, as the verdict says."""
        if verdict.known is None:
            self.buffers.select(verdict)
        if verdict.known is False:
            self.forget()
        else:
            self.commit()

    def settled(self, finite: bool) -> None:  # noqa: B027 - most need not know
        """A step later: what the verdict was that only the device knew."""

    def commit(self) -> None:
        """Makes the state of this step count."""
        self.buffers.commit()

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Drops the state of this step, of all tensors or of those named."""
        self.buffers.forget(names)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """The committed state, by name, then by tensor."""
        return {
            what: {name: held[what].clone() for name, held in self.buffers.committed.items()}
            for what in self.state_kinds
        }

    def load(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Puts back what `state` gave."""
        saved = [state.get(what, {}) for what in self.state_kinds]
        names = saved[0] if saved else ()
        self.buffers.load(
            {
                name: {
                    what: tensors[name].clone() for what, tensors in zip(self.state_kinds, saved, strict=True)
                }
                for name in names
            }
        )


class NoFeedback(ErrorFeedback):
    """No error feedback: right for unbiased codecs, whose errors average out."""

    adds = True

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        pass

    def after(self, sent: Transmission) -> None:
        pass

"""Error feedback: what a rank holds back from one step to the next, committed with the step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.errors import PlanError
from thinwire.tensors import Piece

Held = dict[str, Tensor]  # the pieces of state of one tensor, by name


class Pages:
    """Two copies of all that is held: `kept` is believed, what `room` gives is believed after `commit`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.kept: dict[str, Held] = {}
        self._names = names  # of the pieces of state
        self._spare: dict[str, Held] = {}
        self._fresh: dict[str, Held] = {}

    def old(self, piece: Piece) -> Held | None:
        """What is believed of these elements of a tensor; None: nothing is held of it yet."""
        held = self.kept.get(piece.name)
        return None if held is None else _cut(held, piece)

    def room(self, piece: Piece, like: Tensor) -> Held:
        """Room for what the step leaves of these elements; the same room all through a step."""
        held = self._fresh.get(piece.name)
        if held is None:
            spare = self._spare.pop(piece.name, {})
            held = self._fresh[piece.name] = spare or self._blank(piece, like)
        return _cut(held, piece)

    def in_place(self, piece: Piece, like: Tensor) -> Held:
        """What is believed, to be written over at once: a step cannot be forgotten then."""
        if piece.name not in self.kept:
            self.kept[piece.name] = self._blank(piece, like)
        return _cut(self.kept[piece.name], piece)

    def commit(self) -> None:
        for name, held in self._fresh.items():  # the old room is written to in the next step
            if name in self.kept:
                self._spare[name] = self.kept[name]
            self.kept[name] = held
        self._fresh = {}

    def forget(self, names: Iterable[str] | None = None) -> None:
        for name in list(self._fresh) if names is None else set(names).intersection(self._fresh):
            self._spare[name] = self._fresh.pop(name)

    def load(self, kept: Mapping[str, Held]) -> None:
        self.kept, self._spare, self._fresh = dict(kept), {}, {}

    def _blank(self, piece: Piece, like: Tensor) -> Held:
        return {what: like.new_zeros(piece.numel) for what in self._names}


def _cut(held: Held, piece: Piece) -> Held:
    return {what: tensor[piece.elements] for what, tensor in held.items()}


RATES_WAY_OUT = "call compressor.check_optimizer(optimizer) with the optimizer that updates it"


class Kept(Enum):
    """Whose a piece of state is: what a world of another size gets follows from it."""

    OWN = "own"  # every rank has its own, and their sum over the ranks is what counts
    SHARED = "shared"  # the same on all ranks


class ErrorFeedback(ABC):
    """Sees what a rank means to send (`before`), what it sent (`after`) and the mean (`received`).

    A step is believed as a whole or not at all: what was written in a step that is skipped was never sent.
    What is held does not depend on the loss scale of the gradients.
    """

    pieces_held: ClassVar[Mapping[str, Kept]] = MappingProxyType({})  # of every tensor, by name

    whole_tensors: bool = False  # True: `before` must see all elements of a tensor at once

    adds: ClassVar[bool] = False  # True: `before` only adds what is held, which so can be sent by any codec

    rates: Mapping[str, float] = MappingProxyType({})  # the learning rate of every tensor in this step

    uses_rates: bool = False  # True: `rates` must be known

    norm: float | None = None  # of this rank's whole gradient in this step

    uses_norm: bool = False  # True: `norm` must be known before the first tensor of a step

    def __init__(self) -> None:
        self.pages = Pages(tuple(self.pieces_held))

    @abstractmethod
    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        """Lets what was held back join these pieces of x, in place."""

    @abstractmethod
    def after(
        self,
        x: Tensor,
        own: Tensor,
        base: int,
        pieces: Sequence[Piece],
        loss_scale: float,
        strength: float = 1.0,
    ) -> None:
        """Takes note of what was meant to be sent (x) and what was (own, which begins at element `base`).

        `strength`: the compression level of the codec, 0 in a dense start.
        """

    def received(self, mean: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:  # noqa: B027
        """Sees the mean over all ranks, and may change it, on all ranks alike."""

    def rate(self, name: str) -> float:
        """The learning rate of a tensor; 1 for memories that do not go by it."""
        if not self.uses_rates:
            return 1.0
        if name not in self.rates:
            raise PlanError(
                f"the learning rate of {name} is not known to a memory with lr=on: {RATES_WAY_OUT}"
            )
        return self.rates[name]

    def commit(self) -> None:
        """Believes the step."""
        self.pages.commit()

    def forget(self, names: Iterable[str] | None = None) -> None:
        """Drops what the step would have left, of all tensors or of those named."""
        self.pages.forget(names)

    def state(self) -> dict[str, dict[str, Tensor]]:
        """What is held: by piece of state, then by tensor."""
        return {
            what: {name: held[what].clone() for name, held in self.pages.kept.items()}
            for what in self.pieces_held
        }

    def load(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Puts back what `state` gave."""
        held = [state.get(what, {}) for what in self.pieces_held]
        names = held[0] if held else ()
        self.pages.load(
            {
                name: {what: own[name].clone() for what, own in zip(self.pieces_held, held, strict=True)}
                for name in names
            }
        )


class NoFeedback(ErrorFeedback):
    """Holds nothing back: right for unbiased codecs, whose errors average out."""

    adds = True

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        pass

    def after(
        self,
        x: Tensor,
        own: Tensor,
        base: int,
        pieces: Sequence[Piece],
        loss_scale: float,
        strength: float = 1.0,
    ) -> None:
        pass


def is_finite(x: Tensor) -> bool:
    """One pass and no temporary: NaN is both the least and the greatest of numbers."""
    return x.numel() == 0 or all(bool(torch.isfinite(end)) for end in x.aminmax())

"""Residual error feedback, EF21, and pending residuals of a codec that was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.feedback.base import ErrorFeedback, Kept, is_finite
from thinwire.tensors import Piece
from thinwire.texts import option, show_yes_or_no, yes_or_no

E = "residual"


@dataclass(frozen=True)
class ResidualOptions:
    """Whether a step that is not finite can be undone: it takes room for a second copy of the residuals.

    `lr`: whether residuals are rescaled when the learning rate changes.
    """

    undo: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)
    lr: bool = option(False, yes_or_no, '"on" or "off"', show_yes_or_no)


class Residual(ErrorFeedback):
    """Error feedback: p = g + e; send Q(p); e = p - Q(p).

    Invariant, tensor by tensor: g + old e = sent + new e. With `undo=off` the new e takes the place of the
    old one at once, half the memory: of a step that GradScaler skips, what was sent of finite tensors is then
    lost; a tensor that is not finite on this rank still keeps its e.

    With `lr=on` what is held is lr e, the change of the weights that is owed: p = g + e lr' / lr, where lr'
    was the learning rate when e was held back and lr is that of now. A step whose rate is 0 changes no
    weight: what is held stays as it is.
    """

    pieces_held = MappingProxyType({E: Kept.OWN})
    adds = True

    def __init__(self, options: ResidualOptions = ResidualOptions(), world: int = 1) -> None:
        super().__init__()
        self.undo, self.uses_rates = options.undo, options.lr

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old, rate = self.pages.old(piece), self.rate(piece.name)
            if old is not None and rate:
                x[piece.where].add_(old[E], alpha=loss_scale / rate)

    def after(
        self,
        x: Tensor,
        own: Tensor,
        base: int,
        pieces: Sequence[Piece],
        loss_scale: float,
        strength: float = 1.0,
    ) -> None:
        for piece in pieces:
            meant, rate = x[piece.where], self.rate(piece.name)
            if rate == 0 or (not self.undo and not is_finite(meant)):
                continue  # nothing is owed beside what is held already
            room = self.pages.room(piece, x) if self.undo else self.pages.in_place(piece, x)
            torch.sub(meant, own[piece.moved(base)], out=room[E])
            if loss_scale != rate:
                room[E].mul_(rate / loss_scale) if self.uses_rates else room[E].div_(loss_scale)


LEFTOVER = "leftover"


class PendingResidual(ErrorFeedback):
    """Holds gradients. They join the next exchange of their tensors, and are gone if that step is believed.

    No plan names it: the engine fills it when it takes another plan (`Engine.switch`).
    """

    pieces_held = MappingProxyType({E: Kept.OWN})

    def __init__(self) -> None:
        super().__init__()
        self._joined: set[str] = set()

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.pages.kept)

    def put(self, name: str, gradient: Tensor) -> None:
        """What was held back of a tensor, beside what may be left of it already."""
        held = self.pages.kept.get(name)
        self.pages.kept[name] = {E: gradient if held is None else held[E].add_(gradient)}

    def take(self) -> dict[str, Tensor]:
        """All that is left, which then is somebody else's to keep."""
        taken = {name: held[E] for name, held in self.pages.kept.items()}
        self.pages.load({})
        return taken

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old = self.pages.old(piece)
            if old is not None:
                x[piece.where].add_(old[E].to(x.dtype), alpha=loss_scale)
                self._joined.add(piece.name)

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

    def commit(self) -> None:
        for name in self._joined:
            del self.pages.kept[name]
        self._joined.clear()

    def forget(self, names: Iterable[str] | None = None) -> None:
        self._joined -= self._joined.copy() if names is None else set(names)

    def drop(self) -> None:
        """Gives up all that is left."""
        self.pages.load({})
        self._joined.clear()


H = "estimate"  # h, the mean of all h_i: what the optimizer gets
D = "deviation"  # d_i = h_i - h; over all ranks they add up to zero, in a world of another size too


class Ef21(ErrorFeedback):
    """EF21, for contractions (topk, sign, powersgd, fft). What all know of g_i is h_i = h + d_i:

    1. send c_i = Q(g_i - h_i)
    2. h_i = h_i + c_i
    3. h = h + mean_i c_i, the mean of all h_i, takes the place of the mean gradient

    Where error feedback sends old errors late, EF21 sends the change of the gradient: nothing piles up. h has
    the same bits on all ranks. Richtarik, Sokolov, Fatkhullin, "EF21", NeurIPS 2021.
    """

    pieces_held = MappingProxyType({H: Kept.SHARED, D: Kept.OWN})

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old = self.pages.old(piece)
            if old is not None:
                x[piece.where].sub_(old[H] + old[D], alpha=loss_scale)

    def after(
        self,
        x: Tensor,
        own: Tensor,
        base: int,
        pieces: Sequence[Piece],
        loss_scale: float,
        strength: float = 1.0,
    ) -> None:
        for piece in pieces:
            room, old = self.pages.room(piece, x), self.pages.old(piece)
            torch.div(own[piece.moved(base)], loss_scale, out=room[D])  # c_i; `received` makes it d_i
            if old is not None:
                room[D].add_(old[H] + old[D])

    def received(self, mean: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            room, old = self.pages.room(piece, mean), self.pages.old(piece)
            torch.div(mean[piece.where], loss_scale, out=room[H])
            if old is not None:
                room[H].add_(old[H])
            room[D].sub_(room[H])
            torch.mul(room[H], loss_scale, out=mean[piece.where])

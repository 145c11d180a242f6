"""The residual memory: error feedback."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.memories.base import Kept, Memory, is_finite
from thinwire.tensors.layout import Piece
from thinwire.texts.options import option, show_yes_or_no, yes_or_no

E = "residual"


@dataclass(frozen=True)
class ResidualOptions:
    """Whether a step that is not finite can be undone: it takes room for a second copy of the residuals.

    `lr`: whether residuals are rescaled when the learning rate changes.
    """

    undo: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)
    lr: bool = option(False, yes_or_no, '"on" or "off"', show_yes_or_no)


class Residual(Memory):
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

    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            meant, rate = x[piece.where], self.rate(piece.name)
            if rate == 0 or (not self.undo and not is_finite(meant)):
                continue  # nothing is owed beside what is held already
            room = self.pages.room(piece, x) if self.undo else self.pages.in_place(piece, x)
            torch.sub(meant, own[piece.moved(base)], out=room[E])
            if loss_scale != rate:
                room[E].mul_(rate / loss_scale) if self.uses_rates else room[E].div_(loss_scale)

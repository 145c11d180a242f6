"""The ef21 memory: ranks send what is new of their gradients, and keep what all have been told so far."""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.memories.base import Kept, Memory
from thinwire.tensors.layout import Piece

H = "estimate"  # h, the mean of all h_i: what the optimizer gets
D = "deviation"  # d_i = h_i - h; over all ranks they add up to zero, in a world of another size too


class Ef21(Memory):
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

    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], loss_scale: float) -> None:
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

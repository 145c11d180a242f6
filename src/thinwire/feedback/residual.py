"""Residual error feedback, EF21, and pending residuals of a codec that was replaced."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.devices import StepVerdict, finite_verdict
from thinwire.errors import PlanError
from thinwire.feedback.base import ErrorFeedback, Ownership, Transmission
from thinwire.tensors import Piece
from thinwire.texts import option, show_yes_or_no, yes_or_no

E = "residual"


@dataclass(frozen=True)
class ResidualOptions:
    """`undo`: whether a step that is not finite can be undone, which takes a second copy of the residuals.

    `lr`: whether residuals are rescaled when the learning rate changes. `decay`: the part of a residual that
    joins the next step; below 1 what was held back for long fades.
    """

    undo: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)
    lr: bool = option(False, yes_or_no, '"on" or "off"', show_yes_or_no)
    decay: float = option(1.0, float, "a number above 0 and at most 1", repr)

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise PlanError(f"residual: decay={self.decay:g} must be above 0 and at most 1")


class Residual(ErrorFeedback):
    """Error feedback: p = g + d e; send Q(p); e = p - Q(p), with d = 1 unless `decay` says otherwise.

    Invariant, tensor by tensor: g + d old e = sent + new e. With `undo=off` the new e overwrites the old one
    at once, which halves the memory. If GradScaler skips a step, what was sent of finite tensors is then
    lost; a tensor that is not finite on this rank keeps its e.

    With `lr=on` the state is lr e, the change of the weights that is still due: p = g + e lr' / lr, where
    lr' was the learning rate when e was saved and lr is the present one. A step whose rate is 0 changes no
    weight, so the state stays as it is.
    """

    state_kinds = MappingProxyType({E: Ownership.PER_RANK})
    adds = True

    def __init__(self, options: ResidualOptions = ResidualOptions(), world: int = 1) -> None:
        super().__init__()
        self.undo, self.uses_rates, self.decay = options.undo, options.lr, options.decay

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old, rate = self.buffers.old(piece), self.rate(piece.name)
            if old is not None and rate:
                x[piece.where].add_(old[E], alpha=self.decay * loss_scale / rate)

    def after(self, sent: Transmission) -> None:
        for piece in sent.pieces:
            (meant, reconstruction), rate = sent.of(piece), self.rate(piece.name)
            verdict = None if self.undo else finite_verdict(meant)
            if rate == 0 or (verdict is not None and verdict.known is False):
                continue  # the old residual stays
            new = (self.buffers.new if verdict is None else self.buffers.in_place)(piece, meant)[E]
            old = new.clone() if verdict is not None and verdict.known is None else None
            torch.sub(meant, reconstruction, out=new)
            if sent.loss_scale != rate:
                new.mul_(rate / sent.loss_scale) if self.uses_rates else new.div_(sent.loss_scale)
            if verdict is not None and old is not None:
                verdict.select(new, old)


OWNER = "owner"  # the key in saved states


class OwnerResidual(Residual):
    """Error feedback of the second encoding: send Q(m + D), m the mean of a share; D = m + D - Q(m + D).

    An owner holds D of its shares alone, so D of all ranks add up to one tensor: a world of another size gets
    that, and every rank goes on with what it owns there.
    """

    state_kinds = MappingProxyType({E: Ownership.OWNED})

    def __init__(self) -> None:
        super().__init__()
        self._loaded = False  # a loaded state may have elements of other owners

    def load(self, state: Mapping[str, Mapping[str, Tensor]]) -> None:
        super().load(state)
        self._loaded = True

    def commit(self) -> None:
        super().commit()
        if self._loaded:
            self.buffers.start_blank()
            self._loaded = False


PENDING = "leftover"  # the key in saved states


class PendingResidual(ErrorFeedback):
    """Gradients that a replaced plan did not send. They join the next exchange and clear when it commits.

    No plan names it: the engine fills it when it takes another plan (`Engine.switch`).
    """

    state_kinds = MappingProxyType({E: Ownership.PER_RANK})

    def __init__(self) -> None:
        super().__init__()
        self._joined: set[str] = set()
        self._cleared: set[str] = set()  # on the device, if the step before was finite

    def __bool__(self) -> bool:
        """Whether anything is pending."""
        return bool(self.buffers.committed)

    def put(self, name: str, gradient: Tensor) -> None:
        """Adds what was not sent of a tensor."""
        held = self.buffers.committed.get(name)
        self.buffers.committed[name] = {E: gradient if held is None else held[E].add_(gradient)}
        self._cleared.discard(name)

    def take(self) -> dict[str, Tensor]:
        """Hands everything over to the caller."""
        taken = {name: held[E] for name, held in self.buffers.committed.items()}
        self.buffers.load({})
        self._cleared.clear()
        return taken

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old = self.buffers.old(piece)
            if old is not None:
                x[piece.where].add_(old[E].to(x.dtype), alpha=loss_scale)
                self._joined.add(piece.name)

    def after(self, sent: Transmission) -> None:
        pass

    def settle(self, verdict: StepVerdict) -> None:
        if verdict.known is False or not self._joined:
            self._joined.clear()
            return
        if verdict.known:
            self.commit()
            return
        for name in self._joined:
            held = self.buffers.committed[name]
            held[E] = verdict.select(torch.zeros_like(held[E]), held[E])
        self._cleared, self._joined = self._joined, set()

    def settled(self, finite: bool) -> None:
        """What was cleared on the device is taken off the list."""
        for name in self._cleared if finite else ():
            del self.buffers.committed[name]
            self._joined.discard(name)
        self._cleared = set()

    def commit(self) -> None:
        for name in self._joined:
            del self.buffers.committed[name]
        self._joined.clear()

    def forget(self, names: Iterable[str] | None = None) -> None:
        self._joined -= self._joined.copy() if names is None else set(names)

    def drop(self) -> None:
        """Discards everything."""
        self.buffers.load({})
        self._joined.clear()
        self._cleared.clear()


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

    state_kinds = MappingProxyType({H: Ownership.SHARED, D: Ownership.PER_RANK})
    exact_mean = True

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old = self.buffers.old(piece)
            if old is not None:
                x[piece.where].sub_(old[H] + old[D], alpha=loss_scale)

    def after(self, sent: Transmission) -> None:
        for piece in sent.pieces:
            _, reconstruction = sent.of(piece)
            new, old = self.buffers.new(piece, sent.meant), self.buffers.old(piece)
            torch.div(reconstruction, sent.loss_scale, out=new[D])  # c_i; `received` makes it d_i
            if old is not None:
                new[D].add_(old[H] + old[D])

    def received(self, mean: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            new, old = self.buffers.new(piece, mean), self.buffers.old(piece)
            torch.div(mean[piece.where], loss_scale, out=new[H])
            if old is not None:
                new[H].add_(old[H])
            new[D].sub_(new[H])
            torch.mul(new[H], loss_scale, out=mean[piece.where])

"""Momentum as error feedback: DGC's momentum correction, masking and local clipping."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.devices import is_host
from thinwire.errors import CodecError, PlanError
from thinwire.feedback.base import ErrorFeedback, Ownership, TensorState, Transmission
from thinwire.tensors import Piece
from thinwire.texts import number_or_off, one_of, option, show_number_or_off, show_yes_or_no, yes_or_no

U = "velocity"  # the momentum of this worker's own gradients
V = "unsent"  # all velocities that were not sent yet


@dataclass(frozen=True)
class MomentumOptions:
    """How momentum is corrected: factor m, Nesterov's form, the norm gradients are cut to, masking.

    `lr`: whether what was not sent is rescaled when the learning rate changes. `norm`: whose norm is cut,
    that of each tensor or that of all gradients of the model, as in the paper; for the latter no bucket
    travels before the backward pass is over.
    """

    factor: float = option(0.9, float, "a number from 0 to less than 1", repr)
    nesterov: bool = option(False, yes_or_no, '"on" or "off"', show_yes_or_no)
    clip: float = option(math.inf, number_or_off, 'a positive L2 norm, or "off"', show_number_or_off)
    mask: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)
    lr: bool = option(False, yes_or_no, '"on" or "off"', show_yes_or_no)
    norm: str = option("tensor", one_of("tensor", "model"), '"tensor" or "model"')

    def __post_init__(self) -> None:
        if not 0 <= self.factor < 1:
            raise CodecError(f"momentum: factor={self.factor:g} must be at least 0 and less than 1")
        if not self.clip > 0:
            raise CodecError(f"momentum: clip={self.clip:g} must be positive; use clip=off for no clipping")
        if self.norm == "model" and math.isinf(self.clip):
            raise CodecError("momentum: norm=model says what clip= goes by: give clip too, as in clip=1")


class Momentum(ErrorFeedback):
    """DGC's momentum correction: momentum is applied here, before selecting, and never again.

    1. g = g * min(1, clip * N^-1/2 / ||g||)    local clipping, tensor by tensor or by the norm of all
    2. u = m u + g; v = v + u                   or Nesterov: u = m (u + g); v = v + u + g
    3. send Q(v)
    4. v = v - Q(v); u = 0 where Q(v) != 0      momentum factor masking

    Masking keeps stale momentum from being sent. It costs step length where much is sent: of a constant
    gradient g, 9.1 g is sent a step at 1 % kept, 5.4 g at 6.3 %, 2.25 g at 25 % and g if everything is sent,
    against 10 g of momentum SGD (m = 0.9). The warm-up of dgc is the published algorithm, so it has
    such short steps. A schedule must not shorten them: below compression level 1 nothing is masked, and at
    level 0 this is momentum SGD. `mask=off` never masks: for codecs that send every
    element.

    Invariant: u + old v = sent + new v. With `lr=on` the state is lr v, as with residuals; u is a
    gradient.
    """

    state_kinds = MappingProxyType({U: Ownership.PER_RANK, V: Ownership.PER_RANK})

    def __init__(self, options: MomentumOptions = MomentumOptions(), world: int = 1) -> None:
        super().__init__()
        self.options, self.limit = options, options.clip / math.sqrt(world)
        self.uses_norm = options.norm == "model"
        self.whole_tensors = not math.isinf(self.limit) and not self.uses_norm
        self.uses_rates = options.lr

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            g = x[piece.where]
            old = self.buffers.old(piece) or {U: torch.zeros_like(g), V: torch.zeros_like(g)}
            self._accumulate(g, self._rated(old, piece.name), self.buffers.new(piece, x), loss_scale)

    def after(self, sent: Transmission) -> None:
        for piece in sent.pieces:
            meant, reconstruction = sent.of(piece)
            new, rate = self.buffers.new(piece, meant), self.rate(piece.name)
            if rate == 0:  # nothing changes the weights: the state stays
                self._stay(piece, new)
                continue
            torch.sub(meant, reconstruction, out=new[V])
            if self.uses_rates:
                new[V].mul_(rate / sent.loss_scale)
            elif sent.loss_scale != 1.0:
                new[V].div_(sent.loss_scale)
            if self.options.mask and sent.compression_level == 1:
                new[U].masked_fill_(reconstruction != 0, 0.0)

    def _rated(self, old: TensorState, name: str) -> TensorState:
        """The state, as gradients at the present learning rate."""
        if not self.uses_rates:
            return old
        rate = self.rate(name)
        return {U: old[U], V: old[V] / rate if rate else torch.zeros_like(old[V])}

    def _stay(self, piece: Piece, new: TensorState) -> None:
        old = self.buffers.old(piece)
        new[V].zero_() if old is None else new[V].copy_(old[V])

    def _accumulate(self, g: Tensor, old: TensorState, new: TensorState, loss_scale: float) -> None:
        """Steps 1 and 2: g becomes the new v, in units of the loss scale; the new u goes to its buffer."""
        self._shrink(g, loss_scale)
        if self.options.nesterov:
            torch.add(old[U], g, out=new[U]).mul_(self.options.factor)
            g.add_(new[U]).add_(old[V])
        else:
            torch.add(g, old[U], alpha=self.options.factor, out=new[U])
            torch.add(old[V], new[U], out=g)
        if loss_scale != 1.0:
            g.mul_(loss_scale)

    def _shrink(self, g: Tensor, loss_scale: float) -> None:
        """g min(1, limit / ||g||) / loss scale; float64, because the square of a large gradient overflows."""
        if math.isinf(self.limit) or self.uses_norm:
            norm = 0.0 if math.isinf(self.limit) else self._norm_of_all()
        elif is_host(g.device):
            norm = float(torch.linalg.vector_norm(g, dtype=torch.float64)) / loss_scale
        else:  # a number that the host need not know
            norms = torch.linalg.vector_norm(g, dtype=torch.float64) / loss_scale
            g.mul_(torch.where(norms > self.limit, self.limit / norms, 1.0) / loss_scale)
            return
        factor = (self.limit / norm if norm > self.limit else 1.0) / loss_scale
        if factor != 1.0:
            g.mul_(factor)

    def _norm_of_all(self) -> float:
        if self.norm is None:
            raise PlanError(
                "error feedback with norm=model needs the norm of the whole gradient: exchange by a "
                "Compressor, which waits for all buckets, or leave norm=model out"
            )
        return self.norm

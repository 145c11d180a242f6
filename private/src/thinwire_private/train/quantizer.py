"""Quantizer: LSQ with a power-of-two step, for weights (signed) and activations (unsigned).

q = clip(floor(v / s + 1/2), low, high), v^ = q s, s = 2^-round(t). Rounding is straight-through: the gradient
of v passes where v / s is inside the range, the step's is LSQ's: (q - v / s) inside, low or high outside,
scaled by 1 / sqrt(n * high). With low = 0 this is a ReLU too. Learning t = -log2 s instead of s is TQT's form
(Jain et al. 2020); LSQ: Esser et al. 2020.
"""

from __future__ import annotations

from math import floor, log, log2, sqrt
from typing import Any

import torch
from numpy import float32, nextafter
from torch import Tensor, nn

LN2 = log(2.0)


class _Lsq(torch.autograd.Function):
    """v, t -> v^; see the head of this file."""

    @staticmethod
    def forward(ctx: Any, v: Tensor, t: Tensor, exponent: int, low: int, high: int) -> Tensor:
        scaled = v * 2.0**exponent
        q = (scaled + 0.5).floor_().clamp_(low, high)
        ctx.save_for_backward(scaled, q)
        ctx.facts = exponent, low, high
        return q * 2.0**-exponent

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scaled, q = ctx.saved_tensors
        exponent, low, high = ctx.facts
        (grad,) = grads
        passed = inside(grad, scaled, low, high)
        scale = -LN2 * 2.0**-exponent / sqrt(max(1, q.numel() * high))  # ds/dt = -s ln 2
        # q - v/s inside, low or high outside
        step_grad = (grad * q).sub_(passed * scaled).sum() * scale
        return passed, step_grad.reshape(()), None, None, None


def inside(grad: Tensor, scaled: Tensor, low: int, high: int) -> Tensor:
    """The gradient where low <= scaled <= high, else 0: one pass over memory, where masks take five.

    torch's operator leaves the bounds themselves out, so it gets the single-precision numbers next to them.
    """
    bounds = (nextafter(float32(end), float32(end + way)) for end, way in ((low, -1), (high, 1)))
    passed: Tensor = torch.ops.aten.hardtanh_backward(grad, scaled, *map(float, bounds))
    return passed


class Quantizer(nn.Module):
    """A learned power-of-two step: real = integer * 2^-exponent, exponent = round(t)."""

    t: Tensor

    def __init__(self, signed: bool) -> None:
        super().__init__()
        self.signed = signed
        self.t = nn.Parameter(torch.zeros(()))

    def range(self, bits: int) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.signed else (0, (1 << bits) - 1)

    def exponent(self, finest: int | None = None) -> int:
        """The exponent in use; at most `finest`, so that re-quantization never has to shift left."""
        exponent = floor(self.t.item() + 0.5)
        return exponent if finest is None else min(exponent, finest)

    def forward(self, v: Tensor, bits: int, finest: int | None = None) -> Tensor:
        """v rounded to the grid."""
        grid = (self.exponent(finest), *self.range(bits))
        quantized: Tensor = _Lsq.apply(v, self.t, *grid)  # type: ignore[no-untyped-call]
        return quantized

    @torch.no_grad()
    def fit(self, v: Tensor, bits: int) -> None:
        """Choose the exponent of least squared error on a sample."""
        low, high = self.range(bits)
        top = max(float(v.abs().max()), 1e-8)
        start = floor(log2(high / top)) if high else 0
        best = min(range(start - 1, start + 6), key=lambda exponent: _squared_error(v, exponent, low, high))
        self.t.fill_(float(best))


def _squared_error(v: Tensor, exponent: int, low: int, high: int) -> float:
    q = (v * 2.0**exponent + 0.5).floor_().clamp_(low, high) * 2.0**-exponent
    return float((q - v.clamp(min=0) if low == 0 else q - v).square().sum())

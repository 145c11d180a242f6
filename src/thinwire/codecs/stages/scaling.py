"""Powers of two that bring numbers near 1: their products then neither vanish nor overflow, exactly."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def exponent(x: Tensor) -> int:
    """e with |x| < 2^e, as near as the dtype's normal numbers allow; 0 of zeros and of what is not finite.

    >>> exponent(torch.tensor([-3e20, 1.0])), exponent(torch.zeros(2))
    (69, 0)
    """
    most = 1 - round(math.log2(torch.finfo(x.dtype).smallest_normal))
    largest = float(x.abs().max()) if x.numel() else 0.0
    return max(-most, min(most, math.frexp(largest)[1])) if math.isfinite(largest) else 0


def near_one(x: Tensor) -> Tensor:
    """x times the power of two that brings its largest number to 1/2 .. 1."""
    return x * 2.0 ** -exponent(x)

"""Sums in one order, in elementwise operations: torch's own add in another one with other threads or CPUs."""

from __future__ import annotations

import math
from typing import Any


def folded(terms: Any) -> Any:
    """The sum of a tensor or an array over its first dimension, whose memory it uses:

    the upper half of what is left is added on the lower one, until one is left.
    """
    while terms.shape[0] > 1:
        half = (terms.shape[0] + 1) // 2
        terms[: terms.shape[0] - half] += terms[half:]
        terms = terms[:half]
    return terms.sum(0)  # of one, or of none


def dot(x: Any, y: Any) -> Any:
    return folded(x * y)


def length(x: Any) -> float:
    return math.sqrt(float(dot(x, x)))  # torch.sqrt need not round as IEEE 754 wants it

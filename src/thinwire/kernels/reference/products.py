"""Matrix products in one written-down order of additions: what the native ones must equal bit for bit.

Elementwise operations only: torch's own products and sums give other bits with another number of threads,
with operands that lie elsewhere in memory, and on another kind of CPU.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from thinwire.kernels.reference.eigen import eigen
from thinwire.kernels.reference.folding import dot, length

__all__ = ["eigen", "orthonormal", "product"]

DEPENDENT = 2.0**-40  # what is left of a column that depends on others, as a part of it


def product(a: Tensor, b: Tensor, start: Tensor, c: Tensor, /) -> None:
    """c_in = start_n + a_i0 b_0n + a_i1 b_1n + ..., term by term, each rounded before it is added.

    An empty `start` is 0. What is no number becomes one NaN: its bits would depend on the order of operands.
    """
    c.copy_(start if start.numel() else torch.zeros_like(c))
    for k in range(a.shape[1]):
        c += a[:, k : k + 1] * b[k]
    c.masked_fill_(c.isnan(), math.nan)


def orthonormal(p: Tensor, /) -> None:
    """Makes the columns orthonormal, in place: Gram and Schmidt in float64, every column cleaned twice.

    A column that depends on those before it becomes the first unit vector that does not, cleaned likewise.
    Non-finite input gives NaN everywhere.
    """
    columns = list(p.t().double().contiguous())
    if not all(math.isfinite(float(dot(column, column))) for column in columns):
        p.fill_(math.nan)
        return
    for j, column in enumerate(columns):
        whole = length(column)
        _clean(column, columns[:j])
        left = length(column)
        if not left > whole * DEPENDENT:
            left = _complete(column, columns[:j])
        column /= left
    p.copy_(torch.stack(columns, 1))


def _clean(column: Tensor, before: list[Tensor]) -> None:
    for _ in range(2):
        for other in before:
            column -= dot(other, column) * other


def _complete(column: Tensor, before: list[Tensor]) -> float:
    rows, left = column.numel(), 0.0
    for unit in range(rows):
        column.zero_()[unit] = 1.0
        _clean(column, before)
        left = length(column)
        if left * left * (2 * rows) >= rows - len(before):
            break
    return left

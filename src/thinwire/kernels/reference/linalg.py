"""Matrix products in one written-down order of additions: what the native ones must equal bit for bit.

Elementwise operations only: torch's own products and sums give other bits with another number of threads,
with operands that lie elsewhere in memory, and on another kind of CPU.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Array = NDArray[float64]


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


MOST_SWEEPS = 60  # for one eigenvalue; two or three are usual
NEGLIGIBLE = 2.0**-52


def eigen(a: Tensor, values: Tensor, /) -> None:
    """a (symmetric, float64) becomes its eigenvectors, as rows, not sorted; `values` their eigenvalues.

    1. a = Q T Q^T with T tridiagonal, by Householder's reflections
    2. QL sweeps with implicit shifts on T; the rows of Q^T turn with them

    What is not finite gives NaN.

    Bowdler, Martin, Reinsch and Wilkinson, "The QR and QL algorithms for symmetric matrices", 1968.
    """
    if not bool(a.isfinite().all()):
        a.fill_(math.nan)
        values.fill_(math.nan)
        return
    here = a.cpu()
    z: Array = here.numpy()
    d, e = _tridiagonal(z)
    for first in range(len(d)):
        for _ in range(MOST_SWEEPS):
            last = first
            while last + 1 < len(d) and not abs(e[last]) <= NEGLIGIBLE * (abs(d[last]) + abs(d[last + 1])):
                last += 1
            if last == first:
                break
            _sweep(d, e, z, first, last)
    a.copy_(here)
    values.copy_(torch.tensor(d, dtype=torch.float64))


def _tridiagonal(a: Array) -> tuple[list[float], list[float]]:
    """T's diagonal and what stands beside it; a becomes Q^T."""
    n = a.shape[0]
    beside, factors = [0.0] * n, [0.0] * n
    for k in range(n - 2):
        row = a[k, k + 1 :]
        first, whole = float(row[0]), length(row)
        beside[k] = first
        if float(dot(row[1:], row[1:])) == 0.0:
            continue
        beside[k] = -whole if first > 0.0 else whole
        row[0] = first - beside[k]
        v = row.copy()
        by = factors[k] = 2.0 / float(dot(v, v))
        w = _combined(a[k + 1 :, k + 1 :], v) * by
        w -= (float(dot(w, v)) * by * 0.5) * v
        a[k + 1 :, k + 1 :] -= v[:, None] * w + w[:, None] * v
    diagonal = a.diagonal().tolist()
    if n > 1:
        beside[n - 2] = float(a[n - 1, n - 2])
    _collect(a, factors)
    return diagonal, beside


def _combined(rows: Array, v: Array) -> Array:
    """sum_i v_i rows_i, one after the other."""
    total = 0.0 * abs(v)
    for i in range(rows.shape[0]):
        total += v[i] * rows[i]
    return total


def _collect(a: Array, factors: list[float]) -> None:
    """Q^T from the vectors of the reflections, which lie right of the diagonal; the last reflection first."""
    n = a.shape[0]
    for k in range(n - 1, -1, -1):
        below = a[k + 1 :, k + 1 :]
        if factors[k] != 0.0:
            v = a[k, k + 1 :].copy()
            shares = dot(below.T, v[:, None]) * factors[k]
            below -= shares[:, None] * v
        a[k, k:], a[k:, k] = 0.0, 0.0
        a[k, k] = 1.0


def _sweep(d: list[float], e: list[float], z: Array, first: int, last: int) -> None:
    g = (d[first + 1] - d[first]) / (2.0 * e[first])
    r = math.sqrt(g * g + 1.0)
    g = d[last] - d[first] + e[first] / (g + (-r if g < 0.0 else r))
    s, c, p = 1.0, 1.0, 0.0
    for i in range(last - 1, first - 1, -1):
        f, b = s * e[i], c * e[i]
        r = e[i + 1] = math.sqrt(f * f + g * g)
        if r == 0.0:
            d[i + 1] -= p
            e[last] = 0.0
            return
        s, c = f / r, g / r
        g = d[i + 1] - p
        r = (d[i] - g) * s + 2.0 * c * b
        p = s * r
        d[i + 1] = g + p
        g = c * r - b
        low, high = z[i].copy(), z[i + 1].copy()
        z[i + 1], z[i] = s * low + c * high, c * low - s * high
    d[first] -= p
    e[first] = g
    e[last] = 0.0


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
    if p.device.type != "cpu":
        _orthonormal_unread(columns)
        p.copy_(torch.stack(columns, 1))
        return
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


def _orthonormal_unread(columns: list[Tensor]) -> None:
    """The same where the host must not look: every choice is a select on the device.

    The unit vector that takes the place of a dependent column is chosen by 1 - sum_i q_iu^2, which is what
    would be left of it, and not by cleaning one after the other.
    """
    squares = torch.stack([dot(column, column) for column in columns])
    finite = squares.sum() < torch.inf
    for j, column in enumerate(columns):
        whole = squares[j].sqrt()
        _clean(column, columns[:j])
        left = dot(column, column).sqrt()
        if j:
            rows, taken = column.numel(), folded(torch.stack(columns[:j]).square())
            first = ((1 - taken) * (2 * rows) >= rows - j).long().argmax()
        else:
            first = torch.zeros((), dtype=torch.int64, device=column.device)
        other = (torch.arange(column.numel(), device=column.device) == first).to(column.dtype)
        _clean(other, columns[:j])
        independent = left > whole * DEPENDENT
        column.copy_(torch.where(independent, column, other))
        column /= torch.where(independent, left, dot(other, other).sqrt())
        column.masked_fill_(finite.logical_not(), math.nan)


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

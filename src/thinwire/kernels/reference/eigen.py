"""Eigenvectors of a symmetric matrix in one order of operations: what the native ones must equal bit for bit.

On the CPU and in numpy, whose operations on a row take a fifth of the time of torch's.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from thinwire.kernels.reference.folding import dot, length

if TYPE_CHECKING:
    from numpy import float64
    from numpy.typing import NDArray

    Array = NDArray[float64]

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

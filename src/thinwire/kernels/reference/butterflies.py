"""The passes of a complex Fourier transform (Stockham, decimation in frequency), in elementwise operations.

A pass of radix r takes groups of n = r m points apart, with s interleaved transforms:

    y[q + s (r p + k)] = w^(p k) sum_j x[q + s (p + m j)] v^(j k)

with w = exp(-2 pi i / n), v = exp(-2 pi i / r).
Every product and every sum is rounded by itself. Group p = 0 is not multiplied: its factors are 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

Point = tuple[Tensor, Tensor]  # real and imaginary parts

SIN_3 = 0.8660254037844386  # sin(2 pi / 3)
COS_5, COS_25 = 0.30901699437494745, -0.8090169943749475  # cos(2 pi / 5), cos(4 pi / 5)
SIN_5, SIN_25 = 0.9510565162951535, 0.5877852522924731


def run_passes(re: Tensor, im: Tensor, radices: Sequence[int], factors: Tensor) -> Point:
    """The transforms of rows of points; `factors` are pairs, as `pass_factors` makes them."""
    rows, n = re.shape
    first, stride = 0, 1
    for radix in radices:
        m = n // radix
        count = (radix - 1) * (m - 1)
        own = factors[first : first + count].view(m - 1, radix - 1, 2)
        pieces = [
            (re.view(rows, radix, m, stride)[:, j], im.view(rows, radix, m, stride)[:, j])
            for j in range(radix)
        ]
        turned = _TURNS[radix](pieces)
        results = [turned[0], *(_factored(z, own[:, k]) for k, z in enumerate(turned[1:]))]
        re = torch.stack([z[0] for z in results], 2).view(rows, -1)
        im = torch.stack([z[1] for z in results], 2).view(rows, -1)
        first, n, stride = first + count, m, stride * radix
    return re, im


def times(z: Point, re: Tensor, im: Tensor) -> Point:
    return z[0] * re - z[1] * im, z[0] * im + z[1] * re


def _factored(z: Point, factors: Tensor) -> Point:
    """All groups but the first times their factors."""
    turned = times((z[0][:, 1:], z[1][:, 1:]), factors[:, None, 0], factors[:, None, 1])
    return torch.cat([z[0][:, :1], turned[0]], 1), torch.cat([z[1][:, :1], turned[1]], 1)


def plus(a: Point, b: Point) -> Point:
    return a[0] + b[0], a[1] + b[1]


def minus(a: Point, b: Point) -> Point:
    return a[0] - b[0], a[1] - b[1]


def scaled(z: Point, by: Tensor | float) -> Point:
    return z[0] * by, z[1] * by


def mirrored(z: Point) -> Point:
    return z[0], -z[1]


def _down(z: Point) -> Point:
    """-i z."""
    return z[1], -z[0]


def _turn2(z: Sequence[Point]) -> list[Point]:
    return [plus(z[0], z[1]), minus(z[0], z[1])]


def _turn4(z: Sequence[Point]) -> list[Point]:
    even, odd, other, turned = plus(z[0], z[2]), minus(z[0], z[2]), plus(z[1], z[3]), _down(minus(z[1], z[3]))
    return [plus(even, other), plus(odd, turned), minus(even, other), minus(odd, turned)]


def _turn3(z: Sequence[Point]) -> list[Point]:
    total, turned = plus(z[1], z[2]), scaled(_down(minus(z[1], z[2])), SIN_3)
    middle = minus(z[0], scaled(total, 0.5))
    return [plus(z[0], total), plus(middle, turned), minus(middle, turned)]


def _turn5(z: Sequence[Point]) -> list[Point]:
    near, far = plus(z[1], z[4]), plus(z[2], z[3])
    dnear, dfar = _down(minus(z[1], z[4])), _down(minus(z[2], z[3]))
    one = plus(plus(z[0], scaled(near, COS_5)), scaled(far, COS_25))
    two = plus(plus(z[0], scaled(near, COS_25)), scaled(far, COS_5))
    turned1 = plus(scaled(dnear, SIN_5), scaled(dfar, SIN_25))
    turned2 = minus(scaled(dnear, SIN_25), scaled(dfar, SIN_5))
    whole = plus(plus(z[0], near), far)
    return [whole, plus(one, turned1), plus(two, turned2), minus(two, turned2), minus(one, turned1)]


_TURNS = {2: _turn2, 3: _turn3, 4: _turn4, 5: _turn5}

"""Fourier and cosine transforms of rows in elementwise operations: native ones equal them bit for bit."""

from __future__ import annotations

import math
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


def forward(
    x: Tensor,
    sizes: Tensor,
    passes: Tensor,
    ends: Tensor,
    chirp: Tensor,
    spectrum: Tensor,
    cosines: Tensor,
    y: Tensor,
    /,
) -> None:
    """Rows of n numbers to rows of ceil(n/2) pairs (X_0, X_(n/2)), sqrt(2) X_1, ..., X = rfft(x) / sqrt(n);

    or, with `cosines`, to rows of n cosines (DCT-II, orthonormal):

    1. v = x_0, x_2, x_4, ..., x_5, x_3, x_1 (cosines only)
    2. X: even n by untangling the complex transform of v_0 + i v_1, v_2 + i v_3, ...; odd n as it is
    3. y_k and -y_(n-k) are the parts of exp(-i pi k / 2n) X_k (cosines only)
    """
    n = int(sizes[0])
    ends = ends.view(-1, 2)
    v = x.index_select(1, _order(n, x.device)) if cosines.numel() else x
    if n % 2:
        re, im = _transform((v, torch.zeros_like(v)), sizes, passes, chirp, spectrum)
        half = (n + 1) // 2
        pairs = scaled((re[:, :half], im[:, :half]), ends[1, 0])
        pairs[0][:, 0], pairs[1][:, 0] = re[:, 0] * ends[0, 0], 0.0
    else:
        z = v.reshape(v.shape[0], -1, 2)
        pairs = _untangle(_transform((z[..., 0], z[..., 1]), sizes, passes, chirp, spectrum), ends, False)
    if cosines.numel():
        _to_cosines(pairs, cosines.view(-1, 2), y)
    else:
        y.copy_(torch.stack(pairs, 2).flatten(1))
    _one_nan(y)


def inverse(
    y: Tensor,
    sizes: Tensor,
    passes: Tensor,
    ends: Tensor,
    chirp: Tensor,
    spectrum: Tensor,
    cosines: Tensor,
    x: Tensor,
    /,
) -> None:
    """Back again: the same steps backwards; with its parts exchanged the complex transform is the inverse."""
    n = int(sizes[0])
    ends = ends.view(-1, 2)
    if cosines.numel():
        pairs = _from_cosines(y, cosines.view(-1, 2), n)
    else:
        both = y.view(y.shape[0], -1, 2)
        pairs = both[..., 0], both[..., 1]
    if n % 2:
        first = pairs[0][:, :1] * ends[0, 0]
        re, im = scaled((pairs[0][:, 1:], pairs[1][:, 1:]), ends[0, 1])
        z = torch.cat([first, re, re.flip(1)], 1), torch.cat([torch.zeros_like(first), im, -im.flip(1)], 1)
    else:
        z = _untangle(pairs, ends, True)
    im, re = _transform((z[1], z[0]), sizes, passes, chirp, spectrum)
    v = re if n % 2 else torch.stack([re, im], 2).flatten(1)
    if cosines.numel():
        x[:, _order(n, x.device)] = v
    else:
        x.copy_(v)
    _one_nan(x)


def _transform(z: Point, sizes: Tensor, passes: Tensor, chirp: Tensor, spectrum: Tensor) -> Point:
    """The complex transform; where no radices make up its length, a convolution with a chirp (Bluestein)."""
    _, points, inner, *radices = sizes.tolist()
    factors = passes.view(-1, 2)
    if inner == points:
        return run_passes(z[0].contiguous(), z[1].contiguous(), radices, factors)
    turns, filtering = chirp.view(-1, 2).unbind(1), spectrum.view(-1, 2).unbind(1)
    padded = [torch.nn.functional.pad(part, (0, inner - points)) for part in times(z, *turns)]
    re, im = times(run_passes(padded[0], padded[1], radices, factors), *filtering)
    im, re = run_passes(im, re, radices, factors)
    return times((re[:, :points], im[:, :points]), *turns)


def _untangle(z: Point, ends: Tensor, back: bool) -> Point:
    """Points of the complex transform of pairs of numbers to the spectrum; back with factors mirrored."""
    points = z[0].shape[1]
    whole, part = ends[0]
    re, im = torch.empty_like(z[0]), torch.empty_like(z[1])
    re[:, 0], im[:, 0] = (z[0][:, 0] + z[1][:, 0]) * whole, (z[0][:, 0] - z[1][:, 0]) * whole
    k = torch.arange(1, points // 2 + 1, device=re.device)
    low, high = (z[0][:, k], z[1][:, k]), mirrored((z[0][:, points - k], z[1][:, points - k]))
    turns = ends[2 + k]
    even = scaled(plus(low, high), part)
    odd = times(minus(low, high), turns[:, 0], -turns[:, 1] if back else turns[:, 1])
    re[:, k], im[:, k] = plus(even, odd)
    re[:, points - k], im[:, points - k] = mirrored(minus(even, odd))
    return re, im


def _to_cosines(pairs: Point, cosines: Tensor, y: Tensor) -> None:
    n, k = y.shape[1], torch.arange(1, pairs[0].shape[1], device=y.device)
    re, im = times((pairs[0][:, 1:], pairs[1][:, 1:]), cosines[1:, 0], cosines[1:, 1])
    y[:, 0] = pairs[0][:, 0]
    if n % 2 == 0:
        y[:, n // 2] = pairs[1][:, 0]
    y[:, k], y[:, n - k] = re, -im


def _from_cosines(y: Tensor, cosines: Tensor, n: int) -> Point:
    k = torch.arange(1, (n + 1) // 2, device=y.device)
    re, im = times((y[:, k], -y[:, n - k]), cosines[1:, 0], -cosines[1:, 1])
    last = y[:, n // 2 : n // 2 + 1] if n % 2 == 0 else torch.zeros_like(y[:, :1])
    return torch.cat([y[:, :1], re], 1), torch.cat([last, im], 1)


def _order(n: int, device: torch.device) -> Tensor:
    """The places of x_0, x_2, x_4, ..., x_5, x_3, x_1."""
    places = torch.arange(n, device=device)
    return torch.cat([places[::2], places[1::2].flip(0)])


def _one_nan(x: Tensor) -> None:
    """What is no number becomes one NaN: its bits would depend on the order of operands."""
    x.masked_fill_(x.isnan(), math.nan)

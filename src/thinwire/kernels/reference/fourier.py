"""Fourier and cosine transforms of rows in elementwise operations: native ones equal them bit for bit."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from thinwire.kernels.reference.butterflies import (
    Point,
    minus,
    mirrored,
    plus,
    run_passes,
    scaled,
    times,
)


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

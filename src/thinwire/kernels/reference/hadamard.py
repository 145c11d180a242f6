"""Hadamard rotations of blocks in plain torch: what the native ones must equal bit for bit.

A row of the table is (source, numel, target, scale, block, start): a run of a tensor's elements that begins
at its element `start`, where it lies on either side, and which factors it has (`block` elements share one; 0:
all do).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

from thinwire.kernels.reference.bits import spread
from thinwire.kernels.reference.hashing import counters, random24

__all__ = ["forward", "inverse"]

_SIGNS = 16  # elements whose signs are the bits of one draw


def forward(x: Tensor, table: Tensor, keys: Tensor, factors: Tensor, size: int, y: Tensor, /) -> None:
    """y = H (s o f x): signs s drawn by the keys, factors f, H of blocks of `size` elements, orthonormal.

    What is left at the end of a tensor is cut into the powers of two that make it up, the largest first.
    """
    for segment, key in zip(table.view(-1, 6).tolist(), keys.view(-1, 2).tolist(), strict=True):
        source, numel, target = segment[:3]
        values = _factored(x[source : source + numel], segment, key, factors, size)
        y[target : target + numel] = _turned(values, size)


def inverse(y: Tensor, table: Tensor, keys: Tensor, factors: Tensor, size: int, x: Tensor, /) -> None:
    """x = f s o H y."""
    for segment, key in zip(table.view(-1, 6).tolist(), keys.view(-1, 2).tolist(), strict=True):
        source, numel, target = segment[:3]
        values = _turned(y[target : target + numel], size)
        x[source : source + numel] = _factored(values, segment, key, factors, size)


def _factored(values: Tensor, segment: list[int], key: list[int], factors: Tensor, size: int) -> Tensor:
    """Every value times its sign, its factor and 2^(-k/2), where 2^k elements are turned together."""
    numel, start = segment[1], segment[5]
    lengths = torch.ones(numel, dtype=torch.float32, device=values.device)
    for first, last, length in _pieces(numel, size):
        lengths[first:last] = 1 / math.sqrt(length)
    factor = spread(factors, segment) * lengths
    product = values * factor
    if size > 1:
        product = torch.where(_negative(start, numel, key, values.device), -product, product)
    return torch.where(product.isnan(), math.nan, product)


def _negative(start: int, numel: int, key: list[int], device: torch.device) -> Tensor:
    """Whose sign is minus: bit (i mod 16) of the draw of i div 16; a tensor's elements count from 0."""
    draws = random24(counters(start // _SIGNS, -(-numel // _SIGNS), device), key[0], key[1])
    bits = draws[:, None] >> torch.arange(_SIGNS, dtype=torch.int32, device=device)
    return (bits & 1).flatten()[:numel] == 1


def _turned(values: Tensor, size: int) -> Tensor:
    """Every piece times its Hadamard matrix of plus and minus ones: h = 1, 2, 4, ..., a, b = a + b, a - b."""
    turned = torch.empty_like(values)
    for first, last, length in _pieces(values.numel(), size):
        v, h = values[first:last], 1
        while h < length:
            a, b = v.view(-1, 2, h).unbind(1)
            v, h = torch.stack((a + b, a - b), 1), 2 * h
        turned[first:last] = v.flatten()
    return torch.where(turned.isnan(), math.nan, turned)


def _pieces(numel: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Runs first..last of blocks of one length: whole blocks, then the powers of two that make up the rest.

    >>> list(_pieces(1100, 512))
    [(0, 1024, 512), (1024, 1088, 64), (1088, 1096, 8), (1096, 1100, 4)]
    """
    first, length = 0, size
    while first < numel:
        last = first + (numel - first) // length * length
        if last > first:
            yield first, last, length
        first, length = last, length // 2

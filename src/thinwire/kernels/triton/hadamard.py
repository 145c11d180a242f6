"""Hadamard rotations of blocks on a GPU (kernels/reference/hadamard.py).

A program turns blocks of one tensor. What is left at its end, R < size elements, is cut into the powers of
two that make R up, the largest first; element i lies in the one of length 2^q, where q is the highest bit in
which i and R differ. So a pass h = 1, 2, 4, ... of butterflies is for the elements with (i xor R) >= 2h, and
whole blocks have R = 2 size.
"""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.lanes import NAN_BITS, ROW, aligned

TILE = 1024  # elements of a program, at least a block
SIGNS = tl.constexpr(16)  # elements whose signs are the bits of one draw
ROOT_HALF = tl.constexpr(0.7071067811865475)


def forward(x: Tensor, table: Tensor, keys: Tensor, factors: Tensor, size: int, y: Tensor, /) -> None:
    """y = H (s o f x): signs s drawn by the keys, factors f, H of blocks of `size` elements, orthonormal."""
    _turn(x, y, table, keys, factors, size, y.numel(), forward=True)


def inverse(y: Tensor, table: Tensor, keys: Tensor, factors: Tensor, size: int, x: Tensor, /) -> None:
    """x = f s o H y."""
    _turn(y, x, table, keys, factors, size, y.numel(), forward=False)


def _turn(
    source: Tensor,
    target: Tensor,
    table: Tensor,
    keys: Tensor,
    factors: Tensor,
    size: int,
    places: int,
    forward: bool,
) -> None:
    num, tile = table.numel() // 6, max(size, TILE)
    lanes.launch(
        _turned, lanes.num_tiles(places, tile, num), source, target, table, num, lanes.halvings(num), keys,
        factors, FORWARD=forward, SIZE=size, BLOCKS=tile // size, num_warps=tile // 256,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "steps"])
def _turned(source, target, table, num, steps, keys, factors, FORWARD: tl.constexpr, SIZE: tl.constexpr,
            BLOCKS: tl.constexpr):  # fmt: skip
    own, first = lanes.tile_of(tl.program_id(0), table, num, steps, 2, 6, SIZE * BLOCKS)
    there, here = tl.load(table + own * 6), tl.load(table + own * 6 + 2)
    first *= SIZE * BLOCKS
    left = tl.load(table + own * 6 + 1) - first
    k0, k1 = lanes.key_of(keys, own, True)
    begin, end = (there, here) if FORWARD else (here, there)
    begin, end = begin + first, end + first
    if (begin % 4 == 0) & (end % 4 == 0) & (left >= SIZE * BLOCKS):
        _turn_tile(
            source + aligned(begin), target + aligned(end), left, table + own * 6, first, k0, k1, factors,
            FORWARD, SIZE, BLOCKS, True,
        )  # fmt: skip
    elif left > 0:
        _turn_tile(
            source + begin, target + end, left, table + own * 6, first, k0, k1, factors,
            FORWARD, SIZE, BLOCKS, False,
        )  # fmt: skip


@triton.jit
def _turn_tile(source, target, left, segment, first, k0, k1, factors, FORWARD: tl.constexpr,
               SIZE: tl.constexpr, BLOCKS: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    block, within = tl.arange(0, BLOCKS)[:, None], tl.arange(0, SIZE)[None, :]
    index = block * SIZE + within
    if WHOLE:
        rest = tl.full((BLOCKS, 1), 2 * SIZE, tl.int32)
        value = tl.load(source + index)
    else:
        behind = left - block * SIZE  # elements from this block on
        rest = tl.where(behind >= SIZE, 2 * SIZE, tl.maximum(behind, 0)).to(tl.int32)
        value = tl.load(source + index, mask=index < left, other=0.0)
    if FORWARD:
        value = _factored(value, rest, segment, first, left, k0, k1, factors, SIZE, BLOCKS)
    value = _butterflies(value, rest, SIZE, BLOCKS)
    if not FORWARD:
        value = _factored(value, rest, segment, first, left, k0, k1, factors, SIZE, BLOCKS)
    if WHOLE:
        tl.store(target + index, value)
    else:
        tl.store(target + index, value, mask=index < left)


@triton.jit
def _factored(value, rest, segment, first, left, k0, k1, factors, SIZE: tl.constexpr, BLOCKS: tl.constexpr):
    """Every value times its sign, its factor and 2^(-q/2), where 2^q elements are turned together."""
    scale, share, start = tl.load(segment + 3), tl.load(segment + 4), tl.load(segment + 5)
    place = tl.arange(0, BLOCKS) * SIZE
    per_factor = tl.where(share == 0, 1, share)
    if SIZE >= ROW:
        there = scale + tl.where(share == 0, 0, (start + first + place) // per_factor)
        factor = tl.load(factors + there, mask=place < left, other=0.0)[:, None]
    else:
        element = place[:, None] + tl.arange(0, SIZE)[None, :]
        there = scale + tl.where(share == 0, 0, (start + first + element) // per_factor)
        factor = tl.load(factors + there, mask=element < left, other=0.0)
    product = value * (factor * _length(rest, SIZE))
    if SIZE > 1:
        draw = tl.arange(0, BLOCKS * SIZE // SIGNS)
        counter = ((start + first) // SIGNS).to(tl.uint32) + draw.to(tl.uint32)
        bits = lanes.random24(counter, k0, k1)[:, None] >> tl.arange(0, SIGNS)[None, :]
        product = tl.where(tl.reshape(bits & 1, (BLOCKS, SIZE)) == 1, -product, product)
    return _one_nan(product)


@triton.jit
def _length(rest, SIZE: tl.constexpr):
    """2^(-q/2) of every element as a float, 2^q the length of the piece it lies in."""
    differ = tl.arange(0, SIZE)[None, :] ^ rest  # its highest bit is q, or a higher one in whole blocks
    result = tl.full(differ.shape, 1.0, tl.float32)
    for q in tl.static_range(1, 13):
        if (1 << q) <= SIZE:
            result = tl.where(
                differ >= (1 << q), 0.5 ** (q // 2) * (1.0 if q % 2 == 0 else ROOT_HALF), result
            )
    return result


@triton.jit
def _butterflies(value, rest, SIZE: tl.constexpr, BLOCKS: tl.constexpr):
    """Every piece times its Hadamard matrix: a, b = a + b, a - b for pairs 1, 2, 4, ... elements apart."""
    differ = tl.arange(0, SIZE)[None, :] ^ rest
    for q in tl.static_range(12):
        if (1 << q) < SIZE:
            shaped = tl.reshape(value, (BLOCKS * (SIZE >> (q + 1)), 2, 1 << q))
            a, b = tl.split(tl.permute(shaped, (0, 2, 1)))
            turned = tl.permute(tl.join(a + b, a - b), (0, 2, 1))
            value = tl.where(differ >= (2 << q), tl.reshape(turned, (BLOCKS, SIZE)), value)
    return _one_nan(value)


@triton.jit
def _one_nan(value):
    nan = tl.full(value.shape, NAN_BITS, tl.int32).to(tl.float32, bitcast=True)
    return tl.where(value != value, nan, value)

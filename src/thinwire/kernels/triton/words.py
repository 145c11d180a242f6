"""Sums of integers in 32-bit words, digits of a base, and how rows of levels become numbers of tensors."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.lanes import ROW, aligned, scale_of

ROWS = 64  # of a program that decodes
WORDS = 16  # rows of words of a program that adds


def decode_sum(
    words: Tensor,
    num_shards: int,
    rows_per_shard: int,
    zero: int,
    sum_digits: int,
    table: Tensor,
    steps: Tensor,
    x: Tensor,
    /,
) -> None:
    """Unpacks sums, 0 .. 2 * zero, and scales them: x = (digit - zero) * step."""
    num = table.numel() // 6
    programs = lanes.num_tiles(num_shards * rows_per_shard, ROWS, num)
    lanes.launch(
        _decode_sum, programs, words, table, num, lanes.halvings(num), steps, x, rows_per_shard,
        words.numel() // max(1, num_shards), zero, DIGITS=sum_digits, BASE=2 * zero + 1, ROWS=ROWS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "halvings", "rows_per_shard", "shard_words", "zero"])
def _decode_sum(words, table, num, halvings, steps, x, rows_per_shard, shard_words, zero,
                DIGITS: tl.constexpr, BASE: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    """The k-th digit of a word w, a fraction of 2^32, is the leading one of w BASE^k mod 2^32."""
    own, first, rows = rows_of(table, num, halvings, ROWS)
    row = tl.load(table + own * 6 + 2) + first + rows
    inside = first + rows < tl.cdiv(tl.load(table + own * 6 + 1), ROW)
    shard = row // rows_per_shard
    local = (row - shard * rows_per_shard).to(tl.int32)
    word = local // DIGITS
    place = shard * shard_words + word.to(tl.int64) * ROW
    column = tl.arange(0, 32)[None, :]
    fraction = tl.load(words + place[:, None] + column, mask=inside[:, None], other=0)
    fraction = fraction.to(tl.uint32, bitcast=True) * power(local - word * DIGITS, BASE, DIGITS)[:, None]
    digit = tl.umulhi(fraction, tl.full(fraction.shape, BASE, tl.uint32)).to(tl.int32)
    put_rows(x, table, own, first, rows, (digit - zero).to(tl.float32), steps)


@triton.jit
def power(exponent, BASE: tl.constexpr, MOST: tl.constexpr):
    """BASE ** exponent mod 2^32, for exponents less than MOST (20 at most)."""
    result = tl.full(exponent.shape, 1, tl.uint32)
    square = tl.full(exponent.shape, BASE, tl.uint32)
    for bit in tl.static_range(5):
        if (1 << bit) < MOST:
            result = tl.where((exponent >> bit) & 1 == 1, result * square, result)
            square = square * square
    return result


@triton.jit
def rows_of(table, num, halvings, ROWS: tl.constexpr):
    """The tensor of this program, the first of its rows there (int64), and its rows from that one on."""
    own, first = lanes.tile_of(tl.program_id(0), table, num, halvings, 2, 6, ROWS)
    return own, first * ROWS, tl.arange(0, ROWS)


@triton.jit
def put_rows(x, table, own, first, rows, level, steps):
    """Rows of levels, times the steps of their blocks, to a tensor."""
    offset, numel = tl.load(table + own * 6), tl.load(table + own * 6 + 1)
    scale, block, start = (
        tl.load(table + own * 6 + 3),
        tl.load(table + own * 6 + 4),
        tl.load(table + own * 6 + 5),
    )
    present = first + rows < tl.cdiv(numel, ROW)
    step = tl.load(steps + scale_of(rows, first, scale, block, start), mask=present, other=0.0)
    put(x, offset, numel, first, rows, level * step[:, None])


@triton.jit
def put(x, offset, numel, first, rows, value):
    """Rows of values, from the tensor's row `first` on; those behind its end are dropped."""
    begin = offset + first * ROW
    index = rows[:, None] * ROW + tl.arange(0, 32)[None, :]
    if (begin % 4 == 0) & (numel - first * ROW >= rows.shape[0] * ROW):
        tl.store(x + aligned(begin) + index, value)
    else:
        tl.store(x + begin + index, value, mask=index < numel - first * ROW)


@triton.jit
def store_sums(words, word, num_words, value, LIMIT: tl.constexpr):
    """Numbers below LIMIT as words, the fraction floor(value * 2^32 / LIMIT) + 1, modulo 2^32."""
    value = value & 0xFFFFFFFF
    stored = ((value << 32) // tl.full(value.shape, LIMIT, tl.uint64) + 1).to(tl.uint32)
    index = word[:, None] * ROW + tl.arange(0, 32)[None, :]
    tl.store(words + index, stored.to(tl.int32, bitcast=True), mask=word[:, None] < num_words)

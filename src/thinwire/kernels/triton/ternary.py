"""TernGrad on a GPU: scales, draws and packing, integer sums, decoding (kernels/reference/ternary.py)."""

from __future__ import annotations

import math

import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes, sums, words
from thinwire.kernels.triton.lanes import INF, INF_BITS, ROW, aligned, scale_of
from thinwire.kernels.triton.words import decode_sum

__all__ = ["add", "decode_own", "decode_sum", "encode", "scales"]

GRANULES = 16  # of a program
CONSTANT = tl.constexpr(2.0**-40)


def scales(
    x: Tensor, table: Tensor, clip: float, scaler_is_limit: bool, scale_bits: Tensor, limits: Tensor, /
) -> None:
    """The local scaler of every block as the bit pattern of a float, and the limit of its values."""
    num, count = table.numel() // 6, scale_bits.numel()
    partial = sums.partial_sums(x, table, count)
    clipped = not math.isinf(clip)
    lanes.launch(
        _scales, triton.cdiv(count, sums.BLOCKS) if num else 0, table, num, lanes.halvings(num), count,
        partial.first, partial.second, partial.third, scale_bits, limits,
        CLIPPED=clipped, CLIP=clip if clipped else 1.0, SCALER_IS_LIMIT=scaler_is_limit, BLOCKS=sums.BLOCKS,
        num_warps=2,
    )  # fmt: skip


def encode(
    x: Tensor, table: Tensor, keys: Tensor, scale: Tensor, limits: Tensor, digits: int, payload: Tensor, /
) -> None:
    """Draws trits, P(trit != 0) = min(|g|, limit) / scale, and packs `digits` of them into a byte."""
    num = table.numel() // 6
    programs = lanes.num_tiles(payload.numel() // 32, GRANULES, num)
    lanes.launch(
        _encode, programs, x, table, num, lanes.halvings(num), keys, scale, limits, payload,
        DIGITS=digits, DRAWN=keys.numel() > 0, GRANULES=GRANULES,
    )  # fmt: skip


def add(payloads: Tensor, num_payloads: int, digits: int, sum_digits: int, sums: Tensor, /) -> None:
    """Adds payloads as integers and packs the sums, 0 .. 2 * num_payloads, into 32-bit words."""
    nbytes, num_words = payloads.numel() // num_payloads, sums.numel() // 32
    base = 2 * num_payloads + 1
    lanes.launch(
        _add, triton.cdiv(num_words, words.WORDS), payloads, num_payloads, nbytes, sums, num_words,
        DIGITS=digits, SUM_DIGITS=sum_digits, BASE=base, LIMIT=base**sum_digits, WORDS=words.WORDS,
    )  # fmt: skip


def decode_own(payload: Tensor, digits: int, table: Tensor, scale: Tensor, x: Tensor, /) -> None:
    """Unpacks one payload and scales it: x = trit * scale."""
    num = table.numel() // 6
    programs = lanes.num_tiles(payload.numel() // 32 * digits, words.ROWS, num)
    lanes.launch(
        _decode_own, programs, payload, table, num, lanes.halvings(num), scale, x,
        DIGITS=digits, ROWS=words.ROWS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "steps", "num_scales"])
def _scales(table, num, steps, num_scales, first, second, third, scale_bits, limits, CLIPPED: tl.constexpr,
            CLIP: tl.constexpr, SCALER_IS_LIMIT: tl.constexpr, BLOCKS: tl.constexpr):  # fmt: skip
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    exists, numel, slot, chunks = sums.slots_of(block, table, num, steps, num_scales)
    largest = sums.whole_of(third, slot, chunks, sums.MOMENTS, BLOCKS)
    bits, limit = largest, tl.full((BLOCKS,), INF, tl.float32)
    if CLIPPED:
        count = tl.maximum(numel, 1).to(tl.float64)
        mean = sums.total_of(first, slot, chunks, BLOCKS) / count
        square = sums.total_of(second, slot, chunks, BLOCKS) / count
        variance = square - mean * mean
        sigma = tl.sqrt(tl.maximum(variance, 0.0))
        clip = (tl.full((BLOCKS,), CLIP, tl.float64) * sigma).to(tl.float32)
        cut = (
            (largest < INF_BITS) & (variance > tl.full((BLOCKS,), CONSTANT, tl.float64) * square) & (clip > 0)
        )
        clip_bits = clip.to(tl.int32, bitcast=True)
        if SCALER_IS_LIMIT:
            bits = tl.where(cut, clip_bits, largest)
        else:
            bits = tl.where(cut, tl.minimum(largest, clip_bits), largest)
            limit = tl.where(cut, clip, INF)
    tl.store(scale_bits + block, bits, mask=exists)
    tl.store(limits + block, limit, mask=exists)


@triton.jit(do_not_specialize=["num", "steps"])
def _encode(x, table, num, steps, keys, scale, limits, payload, DIGITS: tl.constexpr, DRAWN: tl.constexpr,
            GRANULES: tl.constexpr):  # fmt: skip
    own, first = lanes.tile_of(tl.program_id(0), table, num, steps, 2, 6, DIGITS * GRANULES)
    granule = tl.load(table + own * 6 + 2) // DIGITS
    first *= GRANULES
    begin = tl.load(table + own * 6) + first * DIGITS * ROW
    left = tl.load(table + own * 6 + 1) - first * DIGITS * ROW
    k0, k1 = lanes.key_of(keys, own, DRAWN)
    if (begin % 4 == 0) & (left >= GRANULES * DIGITS * ROW):
        stored = _packed(
            x + aligned(begin), left, table + own * 6, first, scale, limits, k0, k1,
            DIGITS, DRAWN, GRANULES, True,
        )  # fmt: skip
    else:
        stored = _packed(
            x + begin, left, table + own * 6, first, scale, limits, k0, k1, DIGITS, DRAWN, GRANULES, False
        )
    row = tl.arange(0, GRANULES)[:, None]
    place = (granule + first) * ROW + row * ROW + tl.arange(0, 32)[None, :]
    tl.store(payload + place, stored, mask=row * (DIGITS * ROW) < left)


@triton.jit
def _packed(x, left, segment, first, scale, limits, k0, k1, DIGITS: tl.constexpr, DRAWN: tl.constexpr,
            GRANULES: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    """Bytes of granules: base 3 as the fraction floor(v * 256 / 243) + 1, or base 4."""
    RADIX: tl.constexpr = 3 if DIGITS == 5 else 4
    own_scale, block, start = tl.load(segment + 3), tl.load(segment + 4), tl.load(segment + 5)
    rows = tl.arange(0, GRANULES) * DIGITS
    value = tl.zeros((GRANULES, 32), tl.int32)
    for k in tl.static_range(DIGITS):
        index = (rows[:, None] + k) * ROW + tl.arange(0, 32)[None, :]
        there = scale_of(rows + k, first * DIGITS, own_scale, block, start)
        if WHOLE:
            g, s, limit = tl.load(x + index), tl.load(scale + there), tl.load(limits + there)
        else:
            present = (rows + k) * ROW < left
            g = tl.load(x + index, mask=index < left, other=0.0)
            s, limit = (
                tl.load(scale + there, mask=present, other=0),
                tl.load(limits + there, mask=present, other=0),
            )
        counter = (start + first * (DIGITS * ROW)).to(tl.uint32) + index.to(tl.uint32)
        value = value * RADIX + _digit(g, s[:, None], limit[:, None], counter, k0, k1, DRAWN)
    if DIGITS == 5:
        value = value + 1 + ((value * 3507) >> 16)
    return value.to(tl.uint8)


@triton.jit
def _digit(g, scale, limit, counter, k0, k1, DRAWN: tl.constexpr):
    """Trit + 1: sign(g) where u24 * (the float below scale) * 2**-24 < min(|g|, limit), else 0."""
    magnitude = tl.abs(g)
    clipped = tl.where(magnitude < limit, magnitude, limit)
    if DRAWN:
        u24 = lanes.random24(counter, k0, k1).to(tl.float32)
        hit = u24 * lanes.below_times_unit(scale) < clipped
    else:
        hit = tl.where(scale > 0, scale * 0.5, INF) < clipped
    sign = tl.where(g.to(tl.int32, bitcast=True) < 0, 0, 2)
    return tl.where(hit, sign, 1)


@triton.jit
def _digit_of(byte, k, DIGITS: tl.constexpr):
    """Digit k of a byte (int32): the leading one of the fraction byte * radix^k mod 256."""
    if DIGITS == 5:
        power = tl.where(k == 0, 1, tl.where(k == 1, 3, tl.where(k == 2, 9, tl.where(k == 3, 27, 81))))
        digit = (((byte * power) & 255) * 3) >> 8
    else:
        digit = (byte >> (6 - 2 * k)) & 3
    return digit


@triton.jit(do_not_specialize=["num_payloads", "nbytes", "num_words"])
def _add(payloads, num_payloads, nbytes, sums, num_words, DIGITS: tl.constexpr, SUM_DIGITS: tl.constexpr,
         BASE: tl.constexpr, LIMIT: tl.constexpr, WORDS: tl.constexpr):  # fmt: skip
    """Decodes, adds and packs again in one pass; rows behind the last one are 0."""
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    column = tl.arange(0, 32)[None, :]
    value = tl.zeros((WORDS, 32), tl.uint64)
    for k in tl.static_range(SUM_DIGITS):
        row = word * SUM_DIGITS + k
        granule = row // DIGITS
        place = granule[:, None] * ROW + column
        digit = (row - granule * DIGITS)[:, None]
        total = tl.zeros((WORDS, 32), tl.int32)
        payload = payloads
        for _ in range(num_payloads):
            byte = tl.load(payload + place, mask=place < nbytes, other=0)
            payload += nbytes
            total += _digit_of(byte.to(tl.int32), digit, DIGITS)
        total = tl.where(place < nbytes, total, 0)
        value = value * BASE + total.to(tl.uint64)
    words.store_sums(sums, word, num_words, value, LIMIT)


@triton.jit(do_not_specialize=["num", "steps"])
def _decode_own(payload, table, num, steps, scale, x, DIGITS: tl.constexpr, ROWS: tl.constexpr):
    own, first, rows = words.rows_of(table, num, steps, ROWS)
    row = tl.load(table + own * 6 + 2) + first + rows
    inside = first + rows < tl.cdiv(tl.load(table + own * 6 + 1), ROW)
    granule = row // DIGITS
    place = granule[:, None] * ROW + tl.arange(0, 32)[None, :]
    byte = tl.load(payload + place, mask=inside[:, None], other=0).to(tl.int32)
    trit = _digit_of(byte, (row - granule * DIGITS).to(tl.int32)[:, None], DIGITS) - 1
    words.put_rows(x, table, own, first, rows, trit.to(tl.float32), scale)

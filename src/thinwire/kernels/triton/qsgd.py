"""QSGD on a GPU: norms of blocks, rounding, packing, integer sums, decoding (kernels/reference/qsgd.py)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.sizes import field_granule_bytes, field_rows
from thinwire.kernels.triton import lanes, sums, words
from thinwire.kernels.triton.fields import field_at, joined
from thinwire.kernels.triton.lanes import INF_BITS, LARGEST, NAN_BITS, ROW, aligned, scale_of
from thinwire.kernels.triton.words import decode_sum

__all__ = ["add", "decode_own", "decode_sum", "encode", "scales"]

TILE = 2048  # elements of a program that encodes, at least
AHEAD = tl.constexpr(4)  # rows that are loaded at once


def scales(x: Tensor, table: Tensor, l2: bool, scale_bits: Tensor, /) -> None:
    """The norm of every block as the bit pattern of a float: max|x|, or sqrt(sum x^2) summed in float64."""
    num, count = table.numel() // 6, scale_bits.numel()
    partial = sums.partial_sums(x, table, count)
    lanes.launch(
        _norms, triton.cdiv(count, sums.BLOCKS) if num else 0, table, num, lanes.halvings(num), count,
        partial.first, partial.second, partial.third, scale_bits, L2=l2, BLOCKS=sums.BLOCKS, num_warps=2,
    )  # fmt: skip


def encode(x: Tensor, table: Tensor, keys: Tensor, steps: Tensor, bits: int, payload: Tensor, /) -> None:
    """Rounds |x| / step at random (without keys: to the nearest) and packs level + s in `bits` bits."""
    num, rows = table.numel() // 6, field_rows(bits)
    granules = max(4, TILE // (32 * rows))
    programs = lanes.num_tiles(payload.numel() // field_granule_bytes(bits), granules, num)
    lanes.launch(
        _encode, programs, x, table, num, lanes.halvings(num), keys, steps, payload.view(torch.int32),
        BITS=bits, FIELD_ROWS=rows, DRAWN=keys.numel() > 0, GRANULES=granules,
        num_warps=max(1, granules // 4),
    )  # fmt: skip


def add(payloads: Tensor, num_payloads: int, bits: int, sum_digits: int, sums: Tensor, /) -> None:
    """Adds payloads as integers and packs the sums, 0 .. num_payloads * 2s, into 32-bit words."""
    num_words, nbytes = sums.numel() // 32, payloads.numel() // num_payloads
    base = num_payloads * ((1 << bits) - 2) + 1
    rows = nbytes // field_granule_bytes(bits) * field_rows(bits)
    lanes.launch(
        _add, triton.cdiv(num_words, words.WORDS), payloads.view(torch.int32), num_payloads, nbytes // 4,
        rows, sums, num_words, BITS=bits, FIELD_ROWS=field_rows(bits), SUM_DIGITS=sum_digits, BASE=base,
        LIMIT=base**sum_digits, WORDS=words.WORDS,
    )  # fmt: skip


def decode_own(
    payloads: Tensor, num_payloads: int, bits: int, table: Tensor, steps: Tensor, x: Tensor, /
) -> None:
    """Unpacks payloads (there may be more behind their codes) and adds them up: x = sum of level * step."""
    num, nbytes = table.numel() // 6, payloads.numel() // num_payloads
    rows = nbytes // field_granule_bytes(bits) * field_rows(bits)
    lanes.launch(
        _decode_own, lanes.num_tiles(rows, words.ROWS, num), payloads.view(torch.int32), num_payloads,
        nbytes // 4, table, num, lanes.halvings(num), steps, steps.numel() // num_payloads, x,
        BITS=bits, FIELD_ROWS=field_rows(bits), ROWS=words.ROWS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "steps", "num_scales"])
def _norms(table, num, steps, num_scales, first, second, third, scale_bits, L2: tl.constexpr,
           BLOCKS: tl.constexpr):  # fmt: skip
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    exists, _, slot, chunks = sums.slots_of(block, table, num, steps, num_scales)
    largest = sums.whole_of(third, slot, chunks, sums.MOMENTS, BLOCKS)
    bits = largest
    if L2:
        squares = sums.total_of(second, slot, chunks, BLOCKS)
        norm = tl.minimum(tl.sqrt(squares), tl.full((BLOCKS,), LARGEST, tl.float64))
        bits = norm.to(tl.float32).to(tl.int32, bitcast=True)
    tl.store(scale_bits + block, tl.where(largest >= INF_BITS, NAN_BITS, bits), mask=exists)


@triton.jit(do_not_specialize=["num", "halvings"])
def _encode(x, table, num, halvings, keys, steps, payload, BITS: tl.constexpr, FIELD_ROWS: tl.constexpr,
            DRAWN: tl.constexpr, GRANULES: tl.constexpr):  # fmt: skip
    own, first = lanes.tile_of(tl.program_id(0), table, num, halvings, 2, 6, FIELD_ROWS * GRANULES)
    granule = tl.load(table + own * 6 + 2) // FIELD_ROWS
    first *= GRANULES
    begin = tl.load(table + own * 6) + first * (FIELD_ROWS * ROW)
    left = tl.load(table + own * 6 + 1) - first * (FIELD_ROWS * ROW)
    k0, k1 = lanes.key_of(keys, own, DRAWN)
    place = payload + (granule + first) * (BITS * FIELD_ROWS)
    if (begin % 4 == 0) & (left >= GRANULES * FIELD_ROWS * ROW):
        _pack(
            x + aligned(begin), left, table + own * 6, first, steps, k0, k1, place,
            BITS, FIELD_ROWS, DRAWN, GRANULES, True,
        )  # fmt: skip
    else:
        _pack(
            x + begin, left, table + own * 6, first, steps, k0, k1, place,
            BITS, FIELD_ROWS, DRAWN, GRANULES, False,
        )  # fmt: skip


@triton.jit
def _pack(x, left, segment, first, steps, k0, k1, payload, BITS: tl.constexpr, FIELD_ROWS: tl.constexpr,
          DRAWN: tl.constexpr, GRANULES: tl.constexpr, WHOLE: tl.constexpr):  # fmt: skip
    scale, block, start = tl.load(segment + 3), tl.load(segment + 4), tl.load(segment + 5)
    granule, column = tl.arange(0, GRANULES), tl.arange(0, 32)[None, :]
    place = payload + granule[:, None] * (BITS * FIELD_ROWS) + column
    exists = granule[:, None] * (FIELD_ROWS * ROW) < left
    word = tl.zeros((GRANULES, 32), tl.uint32)
    for group in range(0, FIELD_ROWS, AHEAD):
        for ahead in tl.static_range(AHEAD):
            row = group + ahead
            rows = granule * FIELD_ROWS + row
            index = rows[:, None] * ROW + column
            there = scale_of(rows, first * FIELD_ROWS, scale, block, start)
            if WHOLE:
                value, step = tl.load(x + index), tl.load(steps + there)
            else:
                value = tl.load(x + index, mask=index < left, other=0.0)
                step = tl.load(steps + there, mask=rows * ROW < left, other=0.0)
            counter = (start + first * (FIELD_ROWS * ROW)).to(tl.uint32) + index.to(tl.uint32)
            level = _level(value, step[:, None], counter, k0, k1, BITS, DRAWN)
            word = joined(word, level + ((1 << (BITS - 1)) - 1), place, row, exists, BITS)


@triton.jit
def _level(value, step, counter, k0, k1, BITS: tl.constexpr, DRAWN: tl.constexpr):
    """The level below, top - 1 at most; one more where u24 * (the float below step) * 2**-24 < the rest."""
    TOP: tl.constexpr = (1 << (BITS - 1)) - 1
    magnitude = tl.abs(value)
    one = tl.full(step.shape, 1.0, tl.float32)
    inverse = tl.where(step > 0, tl.minimum(tl.div_rn(one, step), LARGEST), 0.0)
    scaled = magnitude * inverse
    if DRAWN:
        below = tl.where(scaled < TOP - 1, scaled, TOP - 1).to(tl.int32)
        rest = magnitude - below.to(tl.float32) * step
        u24 = lanes.random24(counter, k0, k1).to(tl.float32)
        level = below + (u24 * lanes.below_times_unit(step) < rest).to(tl.int32)
    else:
        level = (tl.where(scaled < TOP, scaled, TOP) + 0.5).to(tl.int32)
    return tl.where(value.to(tl.int32, bitcast=True) < 0, -level, level)


@triton.jit(do_not_specialize=["num_payloads", "payload_words", "num_rows", "num_words"])
def _add(payloads, num_payloads, payload_words, num_rows, sums, num_words, BITS: tl.constexpr,
         FIELD_ROWS: tl.constexpr, SUM_DIGITS: tl.constexpr, BASE: tl.constexpr, LIMIT: tl.constexpr,
         WORDS: tl.constexpr):  # fmt: skip
    """Decodes, adds and packs again in one pass; rows behind the last one are 0."""
    word = tl.program_id(0) * WORDS + tl.arange(0, WORDS)
    value = tl.zeros((WORDS, 32), tl.uint64)
    for k in tl.static_range(SUM_DIGITS):
        row = word.to(tl.int64) * SUM_DIGITS + k
        total = tl.zeros((WORDS, 32), tl.int32)
        payload = payloads
        for _ in range(num_payloads):
            total += field_at(payload, row, row < num_rows, BITS, FIELD_ROWS)
            payload += payload_words
        value = value * BASE + total.to(tl.uint64)
    words.store_sums(sums, word, num_words, value, LIMIT)


@triton.jit(do_not_specialize=["num_payloads", "payload_words", "num", "halvings", "num_steps"])
def _decode_own(payloads, num_payloads, payload_words, table, num, halvings, steps, num_steps, x,
                BITS: tl.constexpr, FIELD_ROWS: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    own, first, rows = words.rows_of(table, num, halvings, ROWS)
    offset, numel = tl.load(table + own * 6), tl.load(table + own * 6 + 1)
    scale, block = tl.load(table + own * 6 + 3), tl.load(table + own * 6 + 4)
    inside = first + rows < tl.cdiv(numel, ROW)
    row = tl.load(table + own * 6 + 2) + first + rows
    there = scale_of(rows, first, scale, block, tl.load(table + own * 6 + 5))
    total = tl.zeros((ROWS, 32), tl.float32)
    payload, step = payloads, steps
    for rank in range(num_payloads):
        level = field_at(payload, row, inside, BITS, FIELD_ROWS) - ((1 << (BITS - 1)) - 1)
        value = level.to(tl.float32) * tl.load(step + there, mask=inside, other=0.0)[:, None]
        if rank == 0:  # 0.0 + -0.0 would be 0.0
            total = value
        else:
            total += value
        payload, step = payload + payload_words, step + num_steps
    words.put(x, offset, numel, first, rows, total)

"""Signs on a GPU: a bit an element, and the values that stand for both signs (kernels/reference/sign.py)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.sizes import field_granule_bytes
from thinwire.kernels.triton import lanes, sums, words
from thinwire.kernels.triton.fields import field_at
from thinwire.kernels.triton.lanes import INF, NAN_BITS, ROW, aligned, scale_of

SLOTS = 16  # chunks of a program
GRANULES = 4  # of a program that only packs


def encode(x: Tensor, table: Tensor, scaled: bool, payload: Tensor, low: Tensor, high: Tensor, /) -> None:
    """Bit = x >= 0 (NaN counts as negative, padding as not), and for every block the two values.

    Numbers are read once: chunks of 4096 numbers are 4 granules, so whoever adds them up packs them, too.
    Where blocks are no whole granules, other programs of the same launch pack.
    """
    num, count = table.numel() // 6, low.numel()
    if not num:
        return
    num_slots = sums.num_slots(x, table, count)
    partial = sums.Partial.empty(num_slots, x.device)
    adders = triton.cdiv(num_slots, SLOTS)
    packers = lanes.num_tiles(payload.numel() // field_granule_bytes(1), GRANULES, num)
    lanes.launch(
        _encode, adders + packers, x, table, num, lanes.halvings(num), adders, num_slots, partial.first,
        partial.second, partial.third, payload.view(torch.int32), SLOTS=SLOTS, GRANULES=GRANULES, num_warps=2,
    )  # fmt: skip
    lanes.launch(
        _values, triton.cdiv(count, sums.BLOCKS), table, num, lanes.halvings(num), count,
        partial.first, partial.second, partial.third, low, high, SCALED=scaled, BLOCKS=sums.BLOCKS,
        num_warps=2,
    )  # fmt: skip


def decode(
    payloads: Tensor, num_payloads: int, table: Tensor, low: Tensor, high: Tensor, x: Tensor, /
) -> None:
    """Adds up what the payloads stand for, in their order; what is behind their bits is left alone."""
    num, nbytes = table.numel() // 6, payloads.numel() // num_payloads
    rows = nbytes // field_granule_bytes(1) * 32
    lanes.launch(
        _decode, lanes.num_tiles(rows, words.ROWS, num), payloads.view(torch.int32), num_payloads,
        nbytes // 4, table, num, lanes.halvings(num), low, high, low.numel() // num_payloads, x,
        ROWS=words.ROWS,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "steps", "adders", "num_slots"])
def _encode(x, table, num, steps, adders, num_slots, first_out, second_out, third_out, payload,
            SLOTS: tl.constexpr, GRANULES: tl.constexpr):  # fmt: skip
    if tl.program_id(0) < adders:
        slot = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
        place, count, own = sums.chunk_of(slot, table, num, steps)
        first, second, third = _summed(x, table, slot, place, count, own, payload, SLOTS)
        tl.store(first_out + slot, first, mask=slot < num_slots)
        tl.store(second_out + slot, second, mask=slot < num_slots)
        tl.store(third_out + slot, third, mask=slot < num_slots)
    else:
        _pack_uneven(x, table, num, steps, tl.program_id(0) - adders, payload, GRANULES)


@triton.jit
def _summed(x, table, slot, place, count, own, payload, SLOTS: tl.constexpr):
    """Sums of slots, and their words where they begin a granule (and end one, or their tensor)."""
    block, offset = tl.load(table + own * 6 + 4), tl.load(table + own * 6)
    granule = tl.load(table + own * 6 + 2) // 32 + (place - offset) // 1024
    even = (block % 1024 == 0) & (count > 0)
    if tl.min(tl.where((place % 4 == 0) & (count == sums.CHUNK) & even, 1, 0)) == 1:
        first, second, third = _granules(x, aligned(place), count, granule, even, payload, SLOTS, True)
    else:
        first, second, third = _granules(x, place, count, granule, even, payload, SLOTS, False)
    return first, second, third


@triton.jit
def _granules(x, place, count, granule, even, payload, SLOTS: tl.constexpr, WHOLE: tl.constexpr):
    lane = tl.arange(0, sums.LANES)[None, :]
    zeros = tl.zeros((SLOTS, sums.LANES), tl.float64)
    first, second, third = zeros, zeros, tl.zeros((SLOTS, sums.LANES), tl.int32)
    end = 4 if WHOLE else tl.cdiv(tl.max(count), 1024)
    for part in range(end):
        left, right = tl.zeros((SLOTS, sums.LANES), tl.uint32), tl.zeros((SLOTS, sums.LANES), tl.uint32)
        for row in range(32):
            for half in tl.static_range(2):
                index = part * 1024 + row * 32 + half * 16 + lane
                inside = index < count[:, None]
                if WHOLE:
                    value = tl.load(x + place[:, None] + index)
                else:
                    value = tl.load(x + place[:, None] + index, mask=inside, other=0.0)
                first, second, third = sums.joined(first, second, third, value, inside, sums.SIGNS)
                bit = (value >= 0).to(tl.uint32) << row
                if half == 0:
                    left |= bit
                else:
                    right |= bit
        words_at = payload + ((granule + part) * 32)[:, None] + lane
        written = (even & (part * 1024 < count))[:, None]
        tl.store(words_at, left.to(tl.int32, bitcast=True), mask=written)
        tl.store(words_at + 16, right.to(tl.int32, bitcast=True), mask=written)
    return sums.folded(first, SLOTS), sums.folded(second, SLOTS), tl.sum(third, 1)


@triton.jit
def _pack_uneven(x, table, num, steps, tile, payload, GRANULES: tl.constexpr):
    """Granules of tensors whose blocks are no whole granules."""
    own, first = lanes.tile_of(tile, table, num, steps, 2, 6, 32 * GRANULES)
    granule = tl.load(table + own * 6 + 2) // 32
    first *= GRANULES
    left = tl.load(table + own * 6 + 1) - first * 1024
    begin = x + tl.load(table + own * 6) + first * 1024
    if (tl.load(table + own * 6 + 4) % 1024 != 0) & (left > 0):
        within, column = tl.arange(0, GRANULES)[:, None], tl.arange(0, 32)[None, :]
        word = tl.zeros((GRANULES, 32), tl.uint32)
        for row in range(32):
            index = within * 1024 + row * ROW + column
            value = tl.load(begin + index, mask=index < left, other=0.0)
            word |= (value >= 0).to(tl.uint32) << row
        place = payload + (granule + first) * 32 + within * 32 + column
        tl.store(place, word.to(tl.int32, bitcast=True), mask=within * 1024 < left)


@triton.jit(do_not_specialize=["num", "steps", "num_scales"])
def _values(table, num, steps, num_scales, first, second, third, low, high, SCALED: tl.constexpr,
            BLOCKS: tl.constexpr):  # fmt: skip
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    exists, numel, slot, chunks = sums.slots_of(block, table, num, steps, num_scales)
    positive = sums.total_of(first, slot, chunks, BLOCKS)
    negative = sums.total_of(second, slot, chunks, BLOCKS)
    num_up = sums.whole_of(third, slot, chunks, sums.SIGNS, BLOCKS)
    if SCALED:
        above = _mean(positive - negative, numel)
        below = tl.where(above == above, -above, above)
    else:
        above, below = _mean(positive, num_up), _mean(negative, numel - num_up)
    tl.store(low + block, below, mask=exists)
    tl.store(high + block, above, mask=exists)


@triton.jit
def _mean(total, count):
    """0 of nothing; what is not finite becomes one NaN."""
    mean = (total / tl.maximum(count, 1).to(tl.float64)).to(tl.float32)
    nan = tl.full(mean.shape, NAN_BITS, tl.int32).to(tl.float32, bitcast=True)
    return tl.where(count == 0, 0.0, tl.where(tl.abs(mean) < INF, mean, nan))


@triton.jit(do_not_specialize=["num_payloads", "payload_words", "num", "steps", "num_values"])
def _decode(payloads, num_payloads, payload_words, table, num, steps, low, high, num_values, x,
            ROWS: tl.constexpr):  # fmt: skip
    own, first, rows = words.rows_of(table, num, steps, ROWS)
    offset, numel = tl.load(table + own * 6), tl.load(table + own * 6 + 1)
    scale, block = tl.load(table + own * 6 + 3), tl.load(table + own * 6 + 4)
    inside = first + rows < tl.cdiv(numel, ROW)
    row = tl.load(table + own * 6 + 2) + first + rows
    there = scale_of(rows, first, scale, block, tl.load(table + own * 6 + 5))
    total = tl.zeros((ROWS, 32), tl.float32)
    payload, below, above = payloads, low, high
    for rank in range(num_payloads):
        bit = field_at(payload, row, inside, 1, 32)
        one = tl.load(above + there, mask=inside, other=0.0)[:, None]
        other = tl.load(below + there, mask=inside, other=0.0)[:, None]
        value = tl.where(bit == 1, one, other)
        if rank == 0:  # 0.0 + -0.0 would be 0.0
            total = value
        else:
            total += value
        payload, below, above = payload + payload_words, below + num_values, above + num_values
    words.put(x, offset, numel, first, rows, total)

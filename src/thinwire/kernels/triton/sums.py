"""Statistics of blocks in the order of additions that is part of the wire format, and in parallel.

A block is summed in chunks of 4096 numbers, a chunk in 16 accumulators, and the sums of chunks likewise
(kernels/reference/bits.py). A slot is a chunk of a block. Block b of tensor s begins at slot

    (32 row_s + b block) // 4096 + scale_s + b

which leaves every block room for its chunks. The first launch sums chunks, the second one (`total_of`, in the
kernel of a family) adds up the sums of every block and makes of them what the family wants.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.lanes import ROW, aligned

CHUNK = tl.constexpr(4096)
LANES = tl.constexpr(16)
SLOTS = 16  # of a program
BLOCKS = 4  # of a program of the second launch
PADDING = 1024  # elements behind a tensor, at most: rows are whole granules

MOMENTS, SIGNS = tl.constexpr(0), tl.constexpr(1)


@dataclass(frozen=True)
class Partial:
    """Of every slot: two sums, and the largest bit pattern of a magnitude (or how many numbers are >= 0)."""

    first: Tensor
    second: Tensor
    third: Tensor

    @classmethod
    def empty(cls, num_slots: int, device: torch.device) -> Partial:
        sums = torch.empty(2, num_slots, dtype=torch.float64, device=device)
        return cls(sums[0], sums[1], torch.empty(num_slots, dtype=torch.int32, device=device))


def num_slots(x: Tensor, table: Tensor, num_scales: int) -> int:
    """Slots that are enough for any table of that many tensors and scales."""
    chunks: int = (x.numel() + PADDING * (table.numel() // 6)) // CHUNK.value
    return chunks + num_scales + 1


def partial_sums(x: Tensor, table: Tensor, num_scales: int) -> Partial:
    """Launch 1: sums and sums of squares of all chunks, and their largest magnitudes."""
    count, num = num_slots(x, table, num_scales), table.numel() // 6
    partial = Partial.empty(count, x.device)
    programs = triton.cdiv(count, SLOTS) if num and num_scales else 0
    lanes.launch(
        _sum_chunks, programs, x, table, num, lanes.halvings(num), count,
        partial.first, partial.second, partial.third, SLOTS=SLOTS, num_warps=2,
    )  # fmt: skip
    return partial


@triton.jit(do_not_specialize=["num", "steps", "num_slots"])
def _sum_chunks(x, table, num, steps, num_slots, first_out, second_out, third_out, SLOTS: tl.constexpr):
    slot = tl.program_id(0) * SLOTS + tl.arange(0, SLOTS)
    place, count, _ = chunk_of(slot, table, num, steps)
    first, second, third = chunk_sums(x, place, count, MOMENTS, SLOTS)
    inside = slot < num_slots
    tl.store(first_out + slot, first, mask=inside)
    tl.store(second_out + slot, second, mask=inside)
    tl.store(third_out + slot, third, mask=inside)


@triton.jit
def chunk_of(slot, table, num, steps):
    """Where the numbers of slots lie in the buffer, how many there are (0: no slot), and their tensors."""
    low, high = slot * 0, slot * 0 + num
    for _ in range(steps):
        middle = (low + high) // 2
        begin = tl.load(table + middle * 6 + 2) * ROW // CHUNK + tl.load(table + middle * 6 + 3)
        low, high = tl.where(begin <= slot, middle, low), tl.where(begin <= slot, high, middle)
    offset, numel = tl.load(table + low * 6), tl.load(table + low * 6 + 1)
    row, scale = tl.load(table + low * 6 + 2) * ROW, tl.load(table + low * 6 + 3)
    block = tl.load(table + low * 6 + 4)
    size = tl.where(block == 0, numel, block)
    own = (CHUNK * (slot - scale + 1) - row - 1) // (block + CHUNK)
    own = tl.where(block == 0, 0, tl.minimum(tl.maximum(own, 0), (numel - 1) // tl.maximum(block, 1)))
    chunk = slot - ((row + own * block) // CHUNK + scale + own)  # negative before the first tensor
    begin = own * block + chunk * CHUNK
    count = tl.minimum(tl.minimum(own * block + size, numel) - begin, CHUNK)
    return offset + begin, tl.where(chunk < 0, 0, tl.maximum(count, 0)).to(tl.int32), low


@triton.jit
def chunk_sums(x, place, count, KIND: tl.constexpr, SLOTS: tl.constexpr):
    """Two sums and a count or maximum of every slot; 128 bits at a time where all are whole and aligned."""
    if tl.min(tl.where((place % 4 == 0) & (count == CHUNK), 1, 0)) == 1:
        first, second, third = _accumulated(x, aligned(place), count, KIND, SLOTS, True)
    else:
        first, second, third = _accumulated(x, place, count, KIND, SLOTS, False)
    return first, second, third


@triton.jit
def _accumulated(x, place, count, KIND: tl.constexpr, SLOTS: tl.constexpr, WHOLE: tl.constexpr):
    lane = tl.arange(0, LANES)[None, :]
    first, second = tl.zeros((SLOTS, LANES), tl.float64), tl.zeros((SLOTS, LANES), tl.float64)
    third = tl.zeros((SLOTS, LANES), tl.int32)
    UNROLLED: tl.constexpr = 8 if WHOLE else 1
    end = CHUNK // LANES if WHOLE else tl.cdiv(tl.max(count), LANES)
    for step in range(0, end, UNROLLED):
        for ahead in tl.static_range(UNROLLED):
            index = (step + ahead) * LANES + lane
            inside = index < count[:, None]
            if WHOLE:
                value = tl.load(x + place[:, None] + index)
            else:
                value = tl.load(x + place[:, None] + index, mask=inside, other=0.0)
            first, second, third = joined(first, second, third, value, inside, KIND)
    if KIND == MOMENTS:
        total = tl.max(third, 1)
    else:
        total = tl.sum(third, 1)
    return folded(first, SLOTS), folded(second, SLOTS), total


@triton.jit
def joined(first, second, third, value, inside, KIND: tl.constexpr):
    if KIND == MOMENTS:
        wide = value.to(tl.float64)
        bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
        first, second, third = first + wide, second + wide * wide, tl.maximum(third, bits)
    else:
        up = value >= 0
        first += tl.where(up, value, 0.0).to(tl.float64)
        second += tl.where(up, 0.0, value).to(tl.float64)
        third += (up & inside).to(tl.int32)
    return first, second, third


@triton.jit
def folded(lanes, ROWS: tl.constexpr):
    """The 16 accumulators of every row, folded in halves."""
    return tl.reshape(_half(_half(_half(_half(lanes, ROWS, 8), ROWS, 4), ROWS, 2), ROWS, 1), (ROWS,))


@triton.jit
def _half(lanes, ROWS: tl.constexpr, HALF: tl.constexpr):
    low, high = tl.split(tl.permute(tl.reshape(lanes, (ROWS, 2, HALF)), (0, 2, 1)))
    return low + high


@triton.jit
def slots_of(block_index, table, num, steps, num_scales):
    """Of blocks by the index of their scale: are there such, how many numbers, their first slot, slots."""
    own = lanes.place_of(block_index, table + 3, num, steps, 6)
    numel, row = tl.load(table + own * 6 + 1), tl.load(table + own * 6 + 2) * ROW
    scale, block = tl.load(table + own * 6 + 3), tl.load(table + own * 6 + 4)
    inside = block_index - scale
    numbers = tl.minimum(tl.where(block == 0, numel, block), numel - inside * block)
    exists = (block_index < num_scales) & tl.where(block == 0, inside == 0, (inside >= 0) & (numbers > 0))
    slot = (row + inside * block) // CHUNK + block_index
    return exists, numbers, slot, tl.where(exists, tl.cdiv(numbers, CHUNK), 0)


@triton.jit
def total_of(sums, slot, count, BLOCKS: tl.constexpr):
    """The sums of `count` chunks from `slot` on, summed as numbers are; up to 2^36 numbers."""
    lane = tl.arange(0, LANES)[None, :]
    outer = tl.zeros((BLOCKS, LANES), tl.float64)
    for group in range(tl.cdiv(tl.max(count), CHUNK)):
        left = tl.minimum(count - group * CHUNK, CHUNK)[:, None]
        inner = tl.zeros((BLOCKS, LANES), tl.float64)
        for step in range(tl.cdiv(tl.max(left), LANES)):
            index = step * LANES + lane
            place = slot[:, None] + group * CHUNK + index
            inner += tl.load(sums + place, mask=index < left, other=0.0)
        outer = tl.where(lane == (group & 15), outer + folded(inner, BLOCKS)[:, None], outer)
    return folded(outer, BLOCKS)


@triton.jit
def whole_of(numbers, slot, count, KIND: tl.constexpr, BLOCKS: tl.constexpr):
    lane = tl.arange(0, LANES)[None, :]
    total = tl.zeros((BLOCKS, LANES), tl.int32)
    for step in range(tl.cdiv(tl.max(count), LANES)):
        index = step * LANES + lane
        value = tl.load(numbers + slot[:, None] + index, mask=index < count[:, None], other=0)
        if KIND == MOMENTS:
            total = tl.maximum(total, value)
        else:
            total += value
    if KIND == MOMENTS:
        result = tl.max(total, 1)
    else:
        result = tl.sum(total, 1)
    return result

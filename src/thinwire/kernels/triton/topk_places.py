"""Places of what top-k chose on a GPU: whose chunk is it, packing places into bits, taking them out again.

Bits as in csrc/topk.h: `low_bits` low bits of every item, end to end, and then marks of the high parts.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.lanes import place_of


@triton.jit
def first_chunk(table, num, steps, begin):
    """The run and the chunk to which value `begin` belongs, or the next one, if it is not its first."""
    run = place_of(begin, table + 7, num, steps, 9)
    per_chunk = tl.load(table + run * 9 + 3) * tl.load(table + run * 9 + 8)
    chunk = tl.maximum(tl.cdiv(begin - tl.load(table + run * 9 + 7), per_chunk), 0)
    return run, chunk


@triton.jit
def next_chunk(table, num, run, chunk):
    """The chunk behind the last one of a run is the first of the next run; the last run ends nowhere."""
    over = (chunk >= tl.load(table + run * 9 + 2)) & (run + 1 < num)
    return tl.where(over, run + 1, run), tl.where(over, 0, chunk)


@triton.jit
def first_value(table, run, chunk):
    """The first value of a chunk, beyond all if there is no such chunk."""
    row = table + run * 9
    value = tl.load(row + 7) + chunk * tl.load(row + 3) * tl.load(row + 8)
    return tl.where(chunk < tl.load(row + 2), value, 1 << 62)


@triton.jit
def _high_bits(chunk, k, low_bits):
    """Bits that the high parts of a chunk's k indices take."""
    highest = (chunk - 1) >> low_bits
    width = tl.where(low_bits == 0, chunk, highest + k)
    return tl.where((highest == 0) | (k == chunk), 0, width)


@triton.jit(do_not_specialize=["num", "steps"])
def pack(indices, table, num, steps, places, BYTES: tl.constexpr):
    """Bytes of the indices of a run: whoever writes a byte looks for the places whose bits lie in it."""
    run, tile = lanes.tile_of(tl.program_id(0), table, num, steps, 5, 9, BYTES)
    row = table + run * 9
    size, count, k, low_bits = tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    begin, group = tl.load(row + 5), tl.load(row + 8)
    num_low, marks = tl.load(row + 6) - begin, _high_bits(size, k, low_bits)
    byte = tile * BYTES + tl.arange(0, BYTES)
    inside, is_low = byte < num_low + tl.cdiv(count * marks, 8), byte < num_low
    own = places + tl.load(row + 7)
    low = _low_byte(own, group, count * k, low_bits, byte, is_low)
    high = _high_byte(own, group, count * k, k, low_bits, marks, byte - num_low, inside & (byte >= num_low))
    tl.store(indices + begin + byte, (low | high).to(tl.uint8), mask=inside)


@triton.jit
def _low_byte(places, group, num_items, low_bits, byte, there):
    """Bits 8 byte .. 8 byte + 7 of the low bits of all items, end to end."""
    width, found = tl.maximum(low_bits, 1), byte * 0
    item = byte * 8 // width
    shift = item * width - byte * 8  # of the item in the byte: its bits may begin before it
    for _ in range(tl.cdiv(7, width) + 1):
        part = tl.load(places + item * group, mask=there & (item < num_items) & (shift < 8), other=0)
        bits = part.to(tl.int64) & ((1 << width) - 1)
        found |= (bits << tl.maximum(shift, 0)) >> tl.maximum(-shift, 0)
        item, shift = item + 1, shift + width
    return tl.where(there, found & 255, 0).to(tl.int32)


@triton.jit
def _high_byte(places, group, num_items, k, low_bits, marks, byte, there):
    """Item j of chunk c marks bit c marks + (place >> low_bits) + j (without low bits: + 0): they ascend."""
    bit = tl.where(there, byte, 0) * 8
    chunk = bit // tl.maximum(marks, 1)
    low, high = chunk * k, chunk * k + k
    left = k
    while left > 0:  # the first item of the chunk with this bit or a later one
        middle = (low + high) // 2
        searched = there & (low < high)
        before = _mark(places, group, middle, chunk, k, low_bits, marks, searched) < bit
        low, high = tl.where(searched & before, middle + 1, low), tl.where(before, high, middle)
        left = left >> 1
    found = (bit * 0).to(tl.int32)
    for _ in range(8):
        there = there & (low < num_items)
        chunk += (low >= chunk * k + k).to(tl.int64)  # a byte may have bits of the next chunks, too
        after = _mark(places, group, low, chunk, k, low_bits, marks, there) - bit
        there = there & (after < 8)
        found |= tl.where(there, 1 << after.to(tl.int32), 0)
        low += 1
    return found


@triton.jit
def _mark(places, group, item, chunk, k, low_bits, marks, there):
    place = tl.load(places + item * group, mask=there, other=0).to(tl.int64)
    return chunk * marks + (place >> low_bits) + tl.where(low_bits > 0, item - chunk * k, 0)


@triton.jit(do_not_specialize=["nbytes", "num", "steps", "num_values"])
def unpack(payloads, nbytes, table, num, steps, places, num_values, SHARE: tl.constexpr,
            BITS: tl.constexpr):  # fmt: skip
    """Places of one payload, counted from the start of their run; -1 where a payload is damaged."""
    begin = tl.program_id(0).to(tl.int64) * SHARE
    payload = payloads + tl.program_id(1).to(tl.int64) * nbytes
    places += tl.program_id(1).to(tl.int64) * num_values
    run, chunk = first_chunk(table, num, steps, begin)
    run, chunk = next_chunk(table, num, run, chunk)
    value = first_value(table, run, chunk)
    while value < begin + SHARE:
        row = table + run * 9
        size, k, low_bits = tl.load(row + 1), tl.load(row + 3), tl.load(row + 4)
        marks = _high_bits(size, k, low_bits)
        low = payload + tl.load(row + 5)
        out, group = places + value, tl.load(row + 8)
        if marks == 0:
            _unpack_low(low, chunk, size, k, low_bits, out, group, BITS)
        else:
            high = payload + tl.load(row + 6)
            _unpack_marks(high, marks, low, chunk, size, k, low_bits, out, group, BITS)
        run, chunk = next_chunk(table, num, run, chunk + 1)
        value = first_value(table, run, chunk)


@triton.jit
def _low_part(low, item, low_bits, inside):
    """The `low_bits` low bits of an index, lowest first, from byte to byte."""
    result = item * 0
    for bit in range(low_bits):
        place = item * low_bits + bit
        byte = tl.load(low + (place >> 3), mask=inside, other=0).to(tl.int64)
        result |= ((byte >> (place & 7)) & 1) << bit
    return result


@triton.jit
def _unpack_low(low, chunk, size, k, low_bits, out, group, BITS: tl.constexpr):
    """Indices without high parts: all bits as they are, or every element of a chunk that is kept whole."""
    for first in range(0, k, BITS):
        item = first + tl.arange(0, BITS).to(tl.int64)
        inside = item < k
        index = item
        if k < size:
            index = _low_part(low, chunk * k + item, low_bits, inside)
        place = tl.where(index < size, chunk * size + index, -1)
        tl.store(out + item * group, place.to(tl.int32), mask=inside)


@triton.jit
def _unpack_marks(high, marks, low, chunk, size, k, low_bits, out, group, BITS: tl.constexpr):
    """The j-th set bit, bit b of its chunk, stands for the high part b - j (without low bits: b)."""
    for first in range(0, k, BITS):
        item = first + tl.arange(0, BITS).to(tl.int64)
        tl.store(out + item * group, tl.full((BITS,), -1, tl.int32), mask=item < k)
    tl.debug_barrier()
    done = k * 0
    for first in range(0, marks, BITS):
        bit = first + tl.arange(0, BITS).to(tl.int64)
        place = chunk * marks + bit
        byte = tl.load(high + (place >> 3), mask=bit < marks, other=0).to(tl.int64)
        is_set = (byte >> (place & 7)) & 1
        item = done + tl.cumsum(is_set) - is_set
        chosen = (is_set == 1) & (item < k)
        part = bit - tl.where(low_bits > 0, item, 0)
        index = (part << low_bits) | _low_part(low, chunk * k + item, low_bits, chosen)
        fine = chosen & (index >= 0) & (index < size)
        tl.store(out + item * group, (chunk * size + index).to(tl.int32), mask=fine)
        done += tl.sum(is_set)

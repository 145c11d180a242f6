"""Top-k on a GPU: choosing the largest groups of chunks, packing places, adding values back.

Columns of a run as in csrc/topk.h: (offset, chunk, count, k, low_bits, low_byte, high_byte, value, group).
The host knows how many values are kept, not how many chunks there are: a program has the chunks whose first
value lies in its SHARE of the values. A chunk is chosen by one program, by radix select on bit patterns, 8
bits a pass; so as many processors are busy as there are chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.lanes import LARGEST, NAN_BITS, aligned, place_of

SHARE = 128  # values
TILE = 2048  # elements that a program looks at together
BYTES = 128  # of indices that a program packs
BITS = 1024  # of marks that a program reads together


def select(x: Tensor, table: Tensor, indices: Tensor, values: Tensor, /) -> None:
    """The k largest groups of every chunk by their keys, of equal ones the first; two launches."""
    num, steps = table.numel() // 9, lanes.halvings(table.numel() // 9)
    places = torch.empty(values.numel(), dtype=torch.int32, device=x.device)
    lanes.launch(
        _select, triton.cdiv(values.numel(), SHARE), x, table, num, steps, values, places,
        SHARE=SHARE, TILE=TILE,
    )  # fmt: skip
    lanes.launch(
        _pack, triton.cdiv(indices.numel(), BYTES), indices, indices.numel(), table, num, steps, places,
        BYTES=BYTES,
    )  # fmt: skip


def scatter(
    payloads: Tensor, num_payloads: int, table: Tensor, values: Tensor, factor: float, x: Tensor, /
) -> None:
    """x = the sum, in order, of all payloads' value * factor at their places, and 0 elsewhere; two launches.

    The host does not look at payloads: places outside their chunk are dropped, and nothing raises.
    """
    num, steps = table.numel() // 9, lanes.halvings(table.numel() // 9)
    nbytes, count = payloads.numel() // num_payloads, values.numel() // num_payloads
    places = torch.empty(values.numel(), dtype=torch.int32, device=x.device)
    lanes.launch(
        _unpack, (triton.cdiv(count, SHARE), num_payloads), payloads, nbytes, table, num, steps, places,
        count, SHARE=SHARE, BITS=BITS,
    )  # fmt: skip
    lanes.launch(
        _scatter, lanes.num_tiles(x.numel(), TILE, num), x, table, num, steps, places, values, count,
        num_payloads, factor, TILE=TILE,
    )  # fmt: skip


@triton.jit
def _first_chunk(table, num, steps, begin):
    """The run and the chunk to which value `begin` belongs, or the next one, if it is not its first."""
    run = place_of(begin, table + 7, num, steps, 9)
    per_chunk = tl.load(table + run * 9 + 3) * tl.load(table + run * 9 + 8)
    chunk = tl.maximum(tl.cdiv(begin - tl.load(table + run * 9 + 7), per_chunk), 0)
    return run, chunk


@triton.jit
def _next_chunk(table, num, run, chunk):
    """The chunk behind the last one of a run is the first of the next run; the last run ends nowhere."""
    over = (chunk >= tl.load(table + run * 9 + 2)) & (run + 1 < num)
    return tl.where(over, run + 1, run), tl.where(over, 0, chunk)


@triton.jit
def _first_value(table, run, chunk):
    """The first value of a chunk, beyond all if there is no such chunk."""
    row = table + run * 9
    value = tl.load(row + 7) + chunk * tl.load(row + 3) * tl.load(row + 8)
    return tl.where(chunk < tl.load(row + 2), value, 1 << 62)


@triton.jit
def _key(x, offset, size, group, first, TILE: tl.constexpr):
    """Magnitudes of elements of a chunk as bit patterns; -1 behind its end.

    Of one number |x|; of two sqrt(a^2 + b^2) in float64, at most the largest float if both are finite.
    """
    index = first + tl.arange(0, TILE)
    inside = index < size
    if (group == 1) & (offset % 4 == 0) & (first + TILE <= size):
        key = tl.load(x + aligned(offset) + index).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    elif group == 1:
        key = tl.load(x + offset + index, mask=inside, other=0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    else:
        a = tl.load(x + offset + index * group, mask=inside, other=0.0).to(tl.float64)
        b = tl.load(x + offset + index * group + 1, mask=inside, other=0.0).to(tl.float64)
        length, most = tl.sqrt(a * a + b * b), tl.full((TILE,), LARGEST, tl.float64)
        length = tl.where((length > most) & (length < float("inf")), most, length)
        key = tl.minimum(length.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF, NAN_BITS)
    return tl.where(inside, key, -1)


@triton.jit(do_not_specialize=["num", "steps"])
def _select(x, table, num, steps, values, places, SHARE: tl.constexpr, TILE: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * SHARE
    run, chunk = _first_chunk(table, num, steps, begin)
    run, chunk = _next_chunk(table, num, run, chunk)
    value = _first_value(table, run, chunk)
    while value < begin + SHARE:
        row = table + run * 9
        size, k, group = tl.load(row + 1).to(tl.int32), tl.load(row + 3).to(tl.int32), tl.load(row + 8)
        offset = tl.load(row) + chunk * size * group
        if k == size:
            _keep(x + offset, size * group.to(tl.int32), values + value, TILE)
        else:
            least, ties = _kth(x, offset, size, k, group, TILE)
            _gather(x, offset, size, group, least, ties, value, values, places, TILE)
        run, chunk = _next_chunk(table, num, run, chunk + 1)
        value = _first_value(table, run, chunk)


@triton.jit
def _keep(x, count, values, TILE: tl.constexpr):
    """A chunk that is kept whole."""
    for first in range(0, count, TILE):
        index = first + tl.arange(0, TILE)
        tl.store(values + index, tl.load(x + index, mask=index < count), mask=index < count)


@triton.jit
def _kth(x, offset, size, k, group, TILE: tl.constexpr):
    """The k-th largest key, 8 bits a pass, and how many of the keys equal to it are kept."""
    prefix, left = k * 0, k
    for digit in tl.static_range(4):
        counts = tl.zeros((256,), tl.int32)
        for first in range(0, size, TILE):
            key = _key(x, offset, size, group, first, TILE) >> (24 - 8 * digit)
            match = (key >= 0) & (key >> 8 == prefix)
            counts += tl.histogram(key & 255, 256, mask=match)
        above = tl.sum(counts) - tl.cumsum(counts)  # keys with a greater digit
        chosen = tl.sum((above >= left).to(tl.int32))  # the first digit with fewer than `left` keys above it
        left -= tl.sum(tl.where(tl.arange(0, 256) == chosen, above, 0))
        prefix = (prefix << 8) | chosen
    return prefix, left


@triton.jit
def _gather(x, offset, size, group, least, ties, value, values, places, TILE: tl.constexpr):
    """Values and places of the chosen, in order: keys above `least`, and the first `ties` equal to it."""
    done, equal_done = ties * 0, ties * 0
    for first in range(0, size, TILE):
        index = first + tl.arange(0, TILE)
        key = _key(x, offset, size, group, first, TILE)
        equal = (key == least).to(tl.int32)
        rank = equal_done + tl.cumsum(equal) - equal
        chosen = (key > least) | ((equal == 1) & (rank < ties))
        one = chosen.to(tl.int32)
        slot = value + (done + tl.cumsum(one) - one).to(tl.int64) * group
        tl.store(places + slot, index, mask=chosen)
        tl.store(values + slot, tl.load(x + offset + index * group, mask=chosen), mask=chosen)
        if group == 2:
            tl.store(values + slot + 1, tl.load(x + offset + index * group + 1, mask=chosen), mask=chosen)
        done, equal_done = done + tl.sum(one), equal_done + tl.sum(equal)


@triton.jit
def _high_bits(chunk, k, low_bits):
    """Bits that the high parts of a chunk's k indices take."""
    highest = (chunk - 1) >> low_bits
    width = tl.where(low_bits == 0, chunk, highest + k)
    return tl.where((highest == 0) | (k == chunk), 0, width)


@triton.jit(do_not_specialize=["num_bytes", "num", "steps"])
def _pack(indices, num_bytes, table, num, steps, places, BYTES: tl.constexpr):
    """Bytes of indices: whoever writes a bit looks for the place that it belongs to."""
    byte = tl.program_id(0).to(tl.int64) * BYTES + tl.arange(0, BYTES)
    run = place_of(byte, table + 5, num, steps, 9)[:, None]
    row = table + run * 9
    size, count, k, low_bits = tl.load(row + 1), tl.load(row + 2), tl.load(row + 3), tl.load(row + 4)
    value, group, high = tl.load(row + 7), tl.load(row + 8), tl.load(row + 6)
    eighth = tl.arange(0, 8)[None, :]
    is_low = byte[:, None] < high
    bit = (byte[:, None] - tl.where(is_low, tl.load(row + 5), high)) * 8 + eighth
    width = tl.maximum(low_bits, 1)
    item = bit // width
    there = is_low & (item < count * k)
    low = tl.load(places + value + item * group, mask=there, other=0) >> (bit - item * width).to(tl.int32)
    marks = tl.maximum(_high_bits(size, k, low_bits), 1)
    chunk = bit // marks
    there = (byte[:, None] < num_bytes) & (is_low == 0) & (chunk < count) & (k < size)
    marked = _is_marked(places, value + chunk * k * group, group, k, low_bits, bit - chunk * marks, there)
    found = tl.where(is_low & (low_bits > 0), low & 1, marked.to(tl.int32))
    tl.store(indices + byte, tl.sum(found << eighth, 1).to(tl.uint8), mask=byte < num_bytes)


@triton.jit
def _is_marked(places, value, group, k, low_bits, bit, there):
    """Whether there is a j with (place_j >> low_bits) + j = bit (without low bits: place_j = bit)."""
    low, high = bit * 0, bit * 0 + k
    found = bit < 0
    left = tl.max(k)
    while left > 0:
        middle = tl.minimum((low + high) // 2, k - 1)
        place = tl.load(places + value + middle * group, mask=there, other=0).to(tl.int64) >> low_bits
        mark = place + tl.where(low_bits > 0, middle, 0)
        found = found | (mark == bit)
        low, high = tl.where(mark < bit, middle + 1, low), tl.where(mark < bit, high, middle)
        left = left >> 1
    return there & found


@triton.jit(do_not_specialize=["nbytes", "num", "steps", "num_values"])
def _unpack(payloads, nbytes, table, num, steps, places, num_values, SHARE: tl.constexpr,
            BITS: tl.constexpr):  # fmt: skip
    """Places of one payload, counted from the start of their run; -1 where a payload is damaged."""
    begin = tl.program_id(0).to(tl.int64) * SHARE
    payload = payloads + tl.program_id(1).to(tl.int64) * nbytes
    places += tl.program_id(1).to(tl.int64) * num_values
    run, chunk = _first_chunk(table, num, steps, begin)
    run, chunk = _next_chunk(table, num, run, chunk)
    value = _first_value(table, run, chunk)
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
        run, chunk = _next_chunk(table, num, run, chunk + 1)
        value = _first_value(table, run, chunk)


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


@triton.jit(do_not_specialize=["num", "steps", "num_values", "num_payloads"])
def _scatter(x, table, num, steps, places, values, num_values, num_payloads, factor, TILE: tl.constexpr):
    """A program owns a tile of a run: 0, then the values of all payloads in their order."""
    run, first = lanes.tile_of(tl.program_id(0), table, num, steps, 0, 9, TILE)
    row = table + run * 9
    offset, group = tl.load(row), tl.load(row + 8)
    first *= TILE
    numel = tl.load(row + 1) * tl.load(row + 2) * group
    index = first + tl.arange(0, TILE)
    tl.store(x + offset + index, tl.zeros((TILE,), tl.float32), mask=index < numel)
    tl.debug_barrier()
    count = tl.load(row + 2) * tl.load(row + 3)
    place, value = places + tl.load(row + 7), values + tl.load(row + 7)
    for _ in range(num_payloads):
        begin = _lower(place, count, group, tl.cdiv(first, group))
        end = _lower(place, count, group, tl.cdiv(first + TILE, group))
        for item in range(begin, end, TILE):
            own = item + tl.arange(0, TILE)
            where = tl.load(place + own * group, mask=own < end, other=-1).to(tl.int64) * group
            fine = (own < end) & (where >= first) & (where < numel)
            _add(x + offset + where, value + own * group, factor, fine)
            if group == 2:
                _add(x + offset + where + 1, value + own * group + 1, factor, fine)
        tl.debug_barrier()  # the next payload's values are added by other threads
        place, value = place + num_values, value + num_values


@triton.jit
def _add(x, value, factor, fine):
    scaled = tl.load(value, mask=fine, other=0.0) * factor
    tl.store(x, tl.load(x, mask=fine, other=0.0) + scaled, mask=fine)


@triton.jit
def _lower(places, count, group, place):
    """How many of the ascending places are less than `place`."""
    low, high = count * 0, count
    while low < high:
        middle = (low + high) // 2
        less = tl.load(places + middle * group) < place
        low, high = tl.where(less, middle + 1, low), tl.where(less, high, middle)
    return low

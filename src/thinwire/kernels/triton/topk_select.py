"""Choosing the largest groups of a chunk on a GPU: guess, verify, fall back.

One program chooses from a chunk, which is too large for its registers: a radix select would read it once for
every digit, and once more to collect. Instead,

1. a sample (8 of every 256 groups) tells a key that a few more than k groups should reach,
2. one pass writes down keys and places of all groups that reach it, the candidates, in their order,
3. the k largest of all are the k largest candidates, if there are k of them and room for all.

Else, where numbers are alike or the sample misled, four passes find the k-th key, 8 bits each, and a fifth
collects. Both ways choose the same groups: those above the k-th largest key, and of equal ones the first.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thinwire.kernels.triton.lanes import LARGEST, NAN_BITS, aligned
from thinwire.kernels.triton.topk_places import first_chunk, first_value, next_chunk

APART, PIECE = tl.constexpr(256), tl.constexpr(8)  # a sample: PIECE groups (a sector of memory) of APART
FEW = tl.constexpr(4096)  # groups of a chunk that is not worth a sample
ROOM = tl.constexpr(512)  # for candidates of a program, beside twice as many as are kept


@triton.jit(do_not_specialize=["num", "steps"])
def choose(x, table, num, steps, values, places, keys, found, SHARE: tl.constexpr, TILE: tl.constexpr):
    """Values and places of the k largest groups of every chunk whose first value is of this program."""
    begin = tl.program_id(0).to(tl.int64) * SHARE
    run, chunk = first_chunk(table, num, steps, begin)
    run, chunk = next_chunk(table, num, run, chunk)
    value = first_value(table, run, chunk)
    while value < begin + SHARE:
        row = table + run * 9
        size, k = tl.load(row + 1).to(tl.int32), tl.load(row + 3).to(tl.int32)
        group = tl.load(row + 8).to(tl.int32)
        offset = tl.load(row) + chunk * (size * group)
        if k == size:
            _keep(x + offset, size * group, values + value, TILE)
        else:
            mine = aligned(2 * value + tl.program_id(0) * ROOM)
            _select(x, offset, size, k, group, values + value, places + value, keys, mine, found + mine, TILE)
        run, chunk = next_chunk(table, num, run, chunk + 1)
        value = first_value(table, run, chunk)


@triton.jit
def _keep(x, count, values, TILE: tl.constexpr):
    """A chunk that is kept whole."""
    for first in range(0, count, TILE):
        index = first + tl.arange(0, TILE)
        tl.store(values + index, tl.load(x + index, mask=index < count), mask=index < count)


@triton.jit
def _select(x, offset, size, k, group, values, places, keys, mine, found, TILE: tl.constexpr):
    room, count, guess, most = 2 * k * group + ROOM - 4, k * 0, k * 0, k * 0
    if (size >= FEW) & (k <= size // 4):
        guess = _guess(x + offset, size, k, group, TILE)
        count, most = _candidates(x, offset, size, group, guess, keys + mine, found, room, TILE)
    if (count >= k) & (count <= room):
        spread = most - guess
        digits = 1 + (spread > 0xFF).to(tl.int32) + (spread > 0xFFFF) + (spread > 0xFFFFFF)
        if count <= 2 * TILE:
            least, ties = _kth_of_few(keys, mine, count, k, guess, digits, 2 * TILE)
        else:
            least, ties = _kth(keys, mine, count, k, 1, guess, digits, TILE)
        _gather(keys, mine, count, 1, least, ties, x + offset, group, found, values, places, True, TILE)
    else:
        least, ties = _kth(x, offset, size, k, group, 0, 4, TILE)
        _gather(x, offset, size, group, least, ties, x + offset, group, found, values, places, False, TILE)


@triton.jit
def _guess(x, size, k, group, TILE: tl.constexpr):
    """A key that about k / 32 + 2.5 sigma groups of the sample reach, in its 16 leading bits."""
    expected = k.to(tl.float32) * (PIECE / APART)
    left, prefix = (expected + 2.5 * tl.sqrt_rn(expected) + 6).to(tl.int32), k * 0
    count = size // APART * PIECE
    for digit in tl.static_range(2):
        counts = tl.zeros((256,), tl.int32)
        for first in range(0, count, TILE):
            item = first + tl.arange(0, TILE)
            piece = item // PIECE
            within = ((piece * 0x1E3779B1).to(tl.uint32) >> 27).to(tl.int32)  # no period of the chunk is met
            index = piece * APART + within * PIECE + item % PIECE
            counts += _digits(_key_at(x, index, item < count, group), prefix, 23 - 8 * digit)
        prefix, left = _next_digit(prefix, left, counts)
    return prefix << 15


@triton.jit
def _candidates(x, offset, size, group, guess, keys, found, room, TILE: tl.constexpr):
    """Keys and places of groups that reach the guess, and the largest key; ends where there is no room."""
    count, most, first = size * 0, size * 0, size * 0
    tl.debug_barrier()  # the chunk before is done with the room
    while (first < size) & (count <= room):
        key = _key(x, offset, size, group, first, TILE)
        reaches = (key >= guess).to(tl.int32)
        slot = count + tl.cumsum(reaches) - reaches
        fits = (reaches == 1) & (slot < room)
        tl.store(keys + slot, key.to(tl.float32, bitcast=True), mask=fits)
        tl.store(found + slot, first + tl.arange(0, TILE), mask=fits)
        count, most, first = count + tl.sum(reaches), tl.maximum(most, tl.max(key)), first + TILE
    tl.debug_barrier()  # others read what was written
    return count, most


@triton.jit
def _kth(x, offset, size, k, group, base, digits, TILE: tl.constexpr):
    """The k-th largest key, `base` or more, 8 bits a pass, and how many of the keys equal to it are kept."""
    prefix, left = k * 0, k
    for digit in range(digits):
        counts = tl.zeros((256,), tl.int32)
        for first in range(0, size, TILE):
            key = _key(x, offset, size, group, first, TILE) - base
            counts += _digits(key, prefix, 8 * (digits - 1 - digit))
        prefix, left = _next_digit(prefix, left, counts)
    return base + prefix, left


@triton.jit
def _kth_of_few(keys, offset, size, k, base, digits, TILE: tl.constexpr):
    """The same of keys that registers can hold: they are read once."""
    prefix, left = k * 0, k
    key = _key(keys, offset, size, 1, 0, TILE) - base
    for digit in range(digits):
        prefix, left = _next_digit(prefix, left, _digits(key, prefix, 8 * (digits - 1 - digit)))
    return base + prefix, left


@triton.jit
def _digits(key, prefix, shift):
    """How many keys have each value of the 8 bits above `shift`, of those that have `prefix` above these."""
    digit = key >> shift
    return tl.histogram(digit & 255, 256, mask=(digit >= 0) & (digit >> 8 == prefix))


@triton.jit
def _next_digit(prefix, left, counts):
    """The digit of the `left`-th largest key behind a prefix, and how many of those with it are kept."""
    above = tl.sum(counts) - tl.cumsum(counts)  # keys with a greater digit
    chosen = tl.sum((above >= left).to(tl.int32))  # the first digit with fewer than `left` keys above it
    return (prefix << 8) | chosen, left - tl.sum(tl.where(tl.arange(0, 256) == chosen, above, 0))


@triton.jit
def _gather(source, offset, count, kind, least, ties, x, group, found, values, places, FOUND: tl.constexpr,
            TILE: tl.constexpr):  # fmt: skip
    """Values and places of the chosen, in order: keys above `least`, and the first `ties` equal to it."""
    done, equal_done = ties * 0, ties * 0
    for first in range(0, count, TILE):
        index = first + tl.arange(0, TILE)
        key = _key(source, offset, count, kind, first, TILE)
        equal = (key == least).to(tl.int32)
        rank = equal_done + tl.cumsum(equal) - equal
        chosen = (key > least) | ((equal == 1) & (rank < ties))
        one = chosen.to(tl.int32)
        slot = (done + tl.cumsum(one) - one) * group
        place = tl.load(found + index, mask=chosen, other=0) if FOUND else index
        tl.store(places + slot, place, mask=chosen)
        tl.store(values + slot, tl.load(x + place * group, mask=chosen), mask=chosen)
        if group == 2:
            tl.store(values + slot + 1, tl.load(x + place * group + 1, mask=chosen), mask=chosen)
        done, equal_done = done + tl.sum(one), equal_done + tl.sum(equal)


@triton.jit
def _key(x, offset, size, group, first, TILE: tl.constexpr):
    """Keys of a tile of a chunk, 128 bits at a time where it is whole and aligned; -1 behind the end."""
    index = first + tl.arange(0, TILE)
    if (group == 1) & (offset % 4 == 0) & (first + TILE <= size):
        key = tl.load(x + aligned(offset) + index).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    else:
        key = _key_at(x + offset, index, index < size, group)
    return key


@triton.jit
def _key_at(x, index, inside, group):
    """Magnitudes of groups as bit patterns; -1 outside.

    Of one number |x|; of two sqrt(a^2 + b^2) in float64, at most the largest float if both are finite.
    """
    if group == 1:
        key = tl.load(x + index, mask=inside, other=0.0).to(tl.int32, bitcast=True) & 0x7FFFFFFF
    else:
        a = tl.load(x + index * 2, mask=inside, other=0.0).to(tl.float64)
        b = tl.load(x + index * 2 + 1, mask=inside, other=0.0).to(tl.float64)
        length, most = tl.sqrt(a * a + b * b), tl.full(index.shape, LARGEST, tl.float64)
        length = tl.where((length > most) & (length < float("inf")), most, length)
        key = tl.minimum(length.to(tl.float32).to(tl.int32, bitcast=True) & 0x7FFFFFFF, NAN_BITS)
    return tl.where(inside, key, -1)

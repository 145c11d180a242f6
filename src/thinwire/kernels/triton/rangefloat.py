"""Range floats on a GPU: fitting, rounding and packing, decoding (kernels/reference/rangefloat.py)."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.sizes import field_rows
from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.fields import field_at, joined
from thinwire.kernels.triton.lanes import INF_BITS, NAN_BITS, ROW, aligned
from thinwire.kernels.triton.streams import piece_of_tile, pieces_of
from thinwire.kernels.triton.sums import LANES, folded

SAMPLE = tl.constexpr(4096)
FIRST_NORMAL = tl.constexpr(0x00800000)
TILE = 2048  # numbers of a program, about
ROWS = 64  # of a program that decodes


def measure(
    x: Tensor, table: Tensor, bits: int, first: int, count: int, largest: int, words: Tensor, /
) -> None:
    """What a rank offers for every fit: max|x| unless `largest` gives it, and errors of mantissas."""
    num, width = table.numel() // 2, count + (largest == 0)
    starts, most = _starts(table), torch.zeros(table.numel() // 2, dtype=torch.int32, device=x.device)
    if largest == 0:
        lanes.launch(
            _max, lanes.num_tiles(x.numel(), TILE, num), x, table, starts, num, lanes.halvings(num), most,
            TILE=TILE,
        )  # fmt: skip
    lanes.launch(
        _errors, num, x, table, most, words, largest, first, BITS=bits, COUNT=count, GIVEN=largest != 0,
        WIDTH=width, CANDIDATES=triton.next_power_of_2(max(1, count)), num_warps=1,
    )  # fmt: skip


def encode(x: Tensor, table: Tensor, fits: Tensor, bits: int, payload: Tensor, lost: Tensor, /) -> None:
    """Rounds and packs; `lost` counts, for every fit, the numbers too large and those that became 0."""
    num, rows = table.numel() // 2, field_rows(bits)
    granules = max(4, TILE // (32 * rows))
    words = payload.numel() // 4 // 32  # rows of words: the last granule may have fewer of them
    lost.zero_()
    lanes.launch(
        _encode, triton.cdiv(words * 32, bits * rows * granules), x, table, _starts(table), num,
        lanes.halvings(num), fits, payload[: words * 128].view(torch.int32), words, lost,
        BITS=bits, FIELD_ROWS=rows, GRANULES=granules, num_warps=max(1, granules // 4),
    )  # fmt: skip


def decode(
    payloads: Tensor,
    num_payloads: int,
    table: Tensor,
    fits: Tensor,
    bits: int,
    factor: float,
    x: Tensor,
    /,
) -> None:
    """x = sum of q * factor in the order of the payloads; NaN for all of a fit if one code of it says so.

    Fits come with payloads, and the host does not look at them: a damaged one gives wrong numbers, in place.
    """
    num, nbytes = table.numel() // 2, payloads.numel() // num_payloads
    starts = _starts(table)
    flawed = torch.zeros(num, dtype=torch.int32, device=x.device)
    rows = min(nbytes * 8 // bits, x.numel() + 31) // 32 + 1
    lanes.launch(
        _decode, triton.cdiv(rows, ROWS) if num else 0, payloads.view(torch.int32), num_payloads, nbytes // 4,
        table, starts, num, lanes.halvings(num), fits, factor, flawed, x,
        BITS=bits, FIELD_ROWS=field_rows(bits), ROWS=ROWS,
    )  # fmt: skip
    lanes.launch(
        _spoil, lanes.num_tiles(x.numel(), TILE, num), x, table, starts, num, lanes.halvings(num), flawed,
        TILE=TILE,
    )  # fmt: skip


def _starts(table: Tensor) -> Tensor:
    """Where each piece begins in the stream."""
    numels = table.view(-1, 2)[:, 1]
    return numels.cumsum(0) - numels


@triton.jit
def _grid(largest, mantissa, BITS: tl.constexpr):
    """(shift, base, top) of a fit: code k > 0 is the float with bit pattern (base + k - 1) << shift."""
    shift = 23 - tl.minimum(tl.maximum(mantissa, 0), 22)
    half = (tl.full(largest.shape, 1, tl.int32) << shift) >> 1
    top = tl.minimum((largest + half) >> shift, (INF_BITS - 1) >> shift)
    base = tl.maximum(
        top - ((((1 << BITS) - 1) // 2) - 1), tl.full(largest.shape, 1 << 23, tl.int32) >> shift
    )
    return shift, base, top


@triton.jit
def _threshold(shift, base, top):
    """Below this bit pattern |x| becomes 0."""
    least = tl.maximum((base << shift) - FIRST_NORMAL, FIRST_NORMAL)
    return tl.where(top < base, INF_BITS, least)


@triton.jit
def _rounded(magnitude, shift, base, top):
    """Bit patterns of |x| to the places base .. top of the nearest numbers, or 0."""
    half = (tl.full(shift.shape, 1, tl.int32) << shift) >> 1
    place = tl.maximum((tl.minimum(magnitude, top << shift) + half) >> shift, base)
    return tl.where(magnitude < _threshold(shift, base, top), 0, place)


@triton.jit(do_not_specialize=["num", "steps"])
def _max(x, table, starts, num, steps, most, TILE: tl.constexpr):
    own, first = lanes.tile_of(tl.program_id(0), starts, num, steps, 0, 1, TILE)
    first *= TILE
    begin, left = tl.load(table + own * 2) + first, tl.load(table + own * 2 + 1) - first
    index = tl.arange(0, TILE)
    if (begin % 4 == 0) & (left >= TILE):
        value = tl.load(x + aligned(begin) + index)
    else:
        value = tl.load(x + begin + index, mask=index < left, other=0.0)
    bits = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
    tl.atomic_max(most + own, tl.max(bits), mask=left > 0)


@triton.jit(do_not_specialize=["largest", "first"])
def _errors(x, table, most, words, largest, first, BITS: tl.constexpr, COUNT: tl.constexpr,
            GIVEN: tl.constexpr, WIDTH: tl.constexpr, CANDIDATES: tl.constexpr):  # fmt: skip
    """sum (x - q(x))^2 / sum x^2 over a sample, every s-th number, s odd; all mantissas at once."""
    own = tl.program_id(0)
    offset, numel = tl.load(table + own * 2), tl.load(table + own * 2 + 1)
    bits = largest + 0 * own
    if not GIVEN:
        bits = tl.load(most + own)
        tl.store(words + own * WIDTH, bits)
    if COUNT > 0:
        candidate = tl.arange(0, CANDIDATES)
        shift, base, top = _grid(bits + 0 * candidate, first + candidate, BITS)
        stride = tl.cdiv(numel, SAMPLE) | 1
        count = tl.cdiv(numel, stride).to(tl.int32)
        lane = tl.arange(0, LANES)[None, :]
        energy, error = tl.zeros((1, LANES), tl.float64), tl.zeros((CANDIDATES, LANES), tl.float64)
        largest_seen = tl.zeros((1, LANES), tl.int32)
        for step in range(tl.cdiv(count, LANES)):
            index = step * LANES + lane
            value = tl.load(x + offset + index * stride, mask=index < count, other=0.0)
            raw = value.to(tl.int32, bitcast=True) & 0x7FFFFFFF
            place = _rounded(raw, shift[:, None], base[:, None], top[:, None]) << shift[:, None]
            wide = raw.to(tl.float32, bitcast=True).to(tl.float64)
            differ = wide - place.to(tl.float32, bitcast=True).to(tl.float64)
            energy, error = energy + wide * wide, error + differ * differ
            largest_seen = tl.maximum(largest_seen, raw)
        whole = folded(energy, 1)
        share = (folded(error, CANDIDATES) / tl.where(whole == 0, 1.0, whole)).to(tl.float32)
        usable = (tl.maximum(tl.max(largest_seen), bits) < INF_BITS) & (tl.max(whole) != 0)
        found = tl.where(usable, share.to(tl.int32, bitcast=True), 0)
        tl.store(words + own * WIDTH + (WIDTH - COUNT) + candidate, found, mask=candidate < COUNT)


@triton.jit(do_not_specialize=["num", "steps", "num_words"])
def _encode(x, table, starts, num, steps, fits, payload, num_words, lost, BITS: tl.constexpr,
            FIELD_ROWS: tl.constexpr, GRANULES: tl.constexpr):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * GRANULES
    begin = first * (FIELD_ROWS * ROW)
    numel = tl.load(starts + num - 1) + tl.load(table + num * 2 - 1)
    own, single = piece_of_tile(begin, GRANULES * FIELD_ROWS * ROW, numel, starts, num, steps, 1)
    offset = tl.load(table + own * 2) + begin - tl.load(starts + own)
    if single & (offset % 4 == 0):
        _pack(
            x + aligned(offset), begin, numel, table, starts, num, steps, own, fits, payload, first,
            num_words, lost, BITS, FIELD_ROWS, GRANULES, True,
        )  # fmt: skip
    else:
        _pack(
            x, begin, numel, table, starts, num, steps, own, fits, payload, first, num_words,
            lost, BITS, FIELD_ROWS, GRANULES, False,
        )  # fmt: skip


@triton.jit
def _pack(x, begin, numel, table, starts, num, steps, own, fits, payload, first, num_words, lost,
          BITS: tl.constexpr, FIELD_ROWS: tl.constexpr, GRANULES: tl.constexpr,
          SINGLE: tl.constexpr):  # fmt: skip
    granule, column = tl.arange(0, GRANULES)[:, None], tl.arange(0, 32)[None, :]
    place = payload + (first + granule) * (BITS * FIELD_ROWS) + column
    word = tl.zeros((GRANULES, 32), tl.uint32)
    large, small = tl.zeros((GRANULES, 32), tl.int32), tl.zeros((GRANULES, 32), tl.int32)
    for row in range(FIELD_ROWS):
        index = (granule * FIELD_ROWS + row) * ROW + column
        inside = index < numel - begin
        if SINGLE:
            value = tl.load(x + index)
            code, over, under = _coded(value, tl.load(fits + own * 2), tl.load(fits + own * 2 + 1), BITS)
            large, small = large + over, small + under
        else:
            fit, within = pieces_of(tl.minimum(begin + index, numel - 1), starts, num, steps, 1)
            value = tl.load(x + tl.load(table + fit * 2) + within, mask=inside, other=0.0)
            code, over, under = _coded(value, tl.load(fits + fit * 2), tl.load(fits + fit * 2 + 1), BITS)
            tl.atomic_add(lost + fit * 2, over.to(tl.int64), mask=inside & (over > 0))
            tl.atomic_add(lost + fit * 2 + 1, under.to(tl.int64), mask=inside & (under > 0))
        code = tl.where(inside, code, 0)
        behind = ((row * BITS) >> 5) + (first + granule) * (BITS * FIELD_ROWS // 32)
        word = joined(word, code, place, row, behind < num_words, BITS)
    if SINGLE:
        tl.atomic_add(lost + own * 2, tl.sum(large).to(tl.int64))
        tl.atomic_add(lost + own * 2 + 1, tl.sum(small).to(tl.int64))


@triton.jit
def _coded(value, largest, mantissa, BITS: tl.constexpr):
    """The codes of numbers; whether they were too large, and whether they became 0."""
    TOP: tl.constexpr = ((1 << BITS) - 1) // 2
    raw = value.to(tl.int32, bitcast=True)
    magnitude = raw & 0x7FFFFFFF
    shift, base, top = _grid(tl.minimum(largest, INF_BITS - 1), mantissa, BITS)
    fine = largest < INF_BITS
    half = (tl.full(shift.shape, 1, tl.int32) << shift) >> 1
    over = fine & (top >= base) & (magnitude - half >= top << shift)
    under = fine & (magnitude > 0) & (magnitude < _threshold(shift, base, top))
    place = _rounded(magnitude, shift, base, top)
    code = tl.where(place > 0, place - base + 1 + tl.where(raw < 0, TOP, 0), 0)
    code = tl.where(fine & (magnitude < INF_BITS), code, 2 * TOP + 1)
    return code, over.to(tl.int32), under.to(tl.int32)


@triton.jit(do_not_specialize=["num_payloads", "payload_words", "num", "steps"])
def _decode(payloads, num_payloads, payload_words, table, starts, num, steps, fits, factor, flawed, x,
            BITS: tl.constexpr, FIELD_ROWS: tl.constexpr, ROWS: tl.constexpr):  # fmt: skip
    TOP: tl.constexpr = ((1 << BITS) - 1) // 2
    rows = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    numel = tl.load(starts + num - 1) + tl.load(table + num * 2 - 1)
    place = rows[:, None] * ROW + tl.arange(0, 32)[None, :]
    inside = place < numel
    begin = tl.program_id(0).to(tl.int64) * (ROWS * ROW)
    own, single = piece_of_tile(tl.minimum(begin, numel - 1), ROWS * ROW, numel, starts, num, steps, 1)
    fit = own + tl.zeros((ROWS, 32), tl.int32)
    within = place - tl.load(starts + own)
    if not single:
        fit, within = pieces_of(tl.minimum(place, numel - 1), starts, num, steps, 1)
    total, bad = tl.zeros((ROWS, 32), tl.float32), tl.zeros((ROWS, 32), tl.int32)
    payload, own_fits = payloads, fits
    for rank in range(num_payloads):
        code = field_at(payload, rows, rows * ROW < numel, BITS, FIELD_ROWS)
        bad |= (code == 2 * TOP + 1).to(tl.int32)
        largest = tl.load(own_fits + fit * 2, mask=inside, other=0)
        mantissa = tl.load(own_fits + fit * 2 + 1, mask=inside, other=0)
        value = _value(code, largest, mantissa, BITS) * factor
        if rank == 0:  # 0.0 + -0.0 would be 0.0
            total = value
        else:
            total += value
        payload, own_fits = payload + payload_words, own_fits + 2 * num
    tl.atomic_max(flawed + fit, bad, mask=inside & (bad > 0))
    tl.store(x + tl.load(table + fit * 2, mask=inside, other=0) + within, total, mask=inside)


@triton.jit
def _value(code, largest, mantissa, BITS: tl.constexpr):
    """What codes stand for."""
    TOP: tl.constexpr = ((1 << BITS) - 1) // 2
    shift, base, _ = _grid(tl.minimum(largest, INF_BITS - 1), mantissa, BITS)
    negative = code > TOP
    pattern = (code - tl.where(negative, TOP, 0) + base - 1) << shift
    pattern = tl.where(negative, pattern | -2147483648, pattern)
    return tl.where(code == 0, 0, pattern).to(tl.float32, bitcast=True)


@triton.jit(do_not_specialize=["num", "steps"])
def _spoil(x, table, starts, num, steps, flawed, TILE: tl.constexpr):
    """NaN for all numbers of a fit that has a code which says so."""
    own, first = lanes.tile_of(tl.program_id(0), starts, num, steps, 0, 1, TILE)
    if tl.load(flawed + own) != 0:
        first *= TILE
        begin, left = tl.load(table + own * 2) + first, tl.load(table + own * 2 + 1) - first
        index = tl.arange(0, TILE)
        nan = tl.full((TILE,), NAN_BITS, tl.int32).to(tl.float32, bitcast=True)
        tl.store(x + begin + index, nan, mask=index < left)

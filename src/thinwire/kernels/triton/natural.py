"""Natural compression on a GPU (kernels/reference/natural.py): a launch each way."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.lanes import NAN_BITS, aligned
from thinwire.kernels.triton.streams import piece_of_tile, pieces_of

TILE = 2048  # numbers of a program
MANTISSA, INFINITE = tl.constexpr((1 << 23) - 1), tl.constexpr(255)


def encode(x: Tensor, table: Tensor, keys: Tensor, payload: Tensor, /) -> None:
    """Exponent e + 1 with probability m, else e, of x = s 2^e (1 + m); 254 at most; 255: not finite."""
    num = table.numel() // 3
    lanes.launch(
        _encode, triton.cdiv(payload.numel(), TILE) if num else 0, x, table, num, lanes.halvings(num), keys,
        payload, TILE=TILE,
    )  # fmt: skip


def decode(payloads: Tensor, num_payloads: int, table: Tensor, x: Tensor, /) -> None:
    """x = the mean, in the order of the payloads, of what they stand for."""
    num, nbytes = table.numel() // 3, payloads.numel() // num_payloads
    lanes.launch(
        _decode, triton.cdiv(nbytes, TILE) if num else 0, payloads, num_payloads, nbytes, table, num,
        lanes.halvings(num), x, TILE=TILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "steps"])
def _encode(x, table, num, steps, keys, payload, TILE: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * TILE
    numel = tl.load(table + num * 3 - 1) + tl.load(table + num * 3 - 2)
    if begin < numel:
        own, single = piece_of_tile(begin, TILE, numel, table + 2, num, steps, 3)
        offset = tl.load(table + own * 3) + begin - tl.load(table + own * 3 + 2)
        if single & (offset % 4 == 0):
            _write(x + aligned(offset), begin, numel, table, num, steps, own, keys, payload, TILE, True)
        else:
            _write(x, begin, numel, table, num, steps, own, keys, payload, TILE, False)


@triton.jit
def _write(x, begin, numel, table, num, steps, own, keys, payload, TILE: tl.constexpr, SINGLE: tl.constexpr):
    index = tl.arange(0, TILE // 8)[:, None] * 8 + tl.arange(0, 8)[None, :]
    place = begin + index
    inside = place < numel
    if SINGLE:
        piece, counter = own, place - tl.load(table + own * 3 + 2)
        value = tl.load(x + index)
    else:
        piece, counter = pieces_of(tl.minimum(place, numel - 1), table + 2, num, steps, 3)
        value = tl.load(x + tl.load(table + piece * 3) + counter, mask=inside, other=0.0)
    pattern = value.to(tl.int32, bitcast=True)
    exponent = (pattern >> 23) & INFINITE
    draw = lanes.random24(counter, tl.load(keys + 2 * piece), tl.load(keys + 2 * piece + 1))
    up = ((draw >> 1) < (pattern & MANTISSA)).to(tl.int32)
    rounded = tl.where(exponent < INFINITE, tl.minimum(exponent + up, INFINITE - 1), INFINITE)
    tl.store(payload + place, rounded.to(tl.uint8), mask=inside)
    signs = tl.where(inside & (pattern < 0), 1, 0) << tl.arange(0, 8)[None, :]
    byte = begin // 8 + tl.arange(0, TILE // 8)
    tl.store(payload + numel + byte, tl.sum(signs, 1).to(tl.uint8), mask=byte * 8 < numel)


@triton.jit(do_not_specialize=["num_payloads", "nbytes", "num", "steps"])
def _decode(payloads, num_payloads, nbytes, table, num, steps, x, TILE: tl.constexpr):
    begin = tl.program_id(0).to(tl.int64) * TILE
    numel = tl.load(table + num * 3 - 1) + tl.load(table + num * 3 - 2)
    if begin < numel:
        place = begin + tl.arange(0, TILE)
        inside = place < numel
        own, single = piece_of_tile(begin, TILE, numel, table + 2, num, steps, 3)
        total = tl.zeros((TILE,), tl.float32)
        payload = payloads
        for rank in range(num_payloads):
            value = _value(payload, place, numel, inside)
            if rank == 0:  # 0.0 + -0.0 would be 0.0
                total = value
            else:
                total += value
            payload += nbytes
        mean = tl.div_rn(total, num_payloads.to(tl.float32) + tl.zeros((TILE,), tl.float32))
        offset = tl.load(table + own * 3) + begin - tl.load(table + own * 3 + 2)
        if single & (offset % 4 == 0):
            tl.store(x + aligned(offset) + tl.arange(0, TILE), mean)
        else:
            piece, within = pieces_of(tl.minimum(place, numel - 1), table + 2, num, steps, 3)
            tl.store(x + tl.load(table + piece * 3) + within, mean, mask=inside)


@triton.jit
def _value(payload, place, numel, inside):
    exponent = tl.load(payload + place, mask=inside, other=0).to(tl.int32)
    byte = tl.load(payload + numel + place // 8, mask=inside, other=0).to(tl.int32)
    negative = (byte >> (place % 8).to(tl.int32)) & 1
    nan = tl.full(exponent.shape, NAN_BITS, tl.int32)
    bits = (exponent << 23) | (negative << 31)
    return tl.where(exponent < INFINITE, bits, nan).to(tl.float32, bitcast=True)

"""QSGD kernels in plain torch: norms of blocks, stochastic rounding, packing, integer sums, decoding.

Codes, level + s, are fields of `bits` bits (reference/fields.py). See docs/reference/wire.md.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from thinwire.kernels.reference.bits import (
    INF_BITS,
    blocks,
    decode_sum,
    max_bits,
    ordered_sum,
    pack_fields,
    pack_sums,
    scatter_rows,
    spread,
    unpack_fields,
)
from thinwire.kernels.reference.hashing import counters, random24
from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows

__all__ = ["add", "decode_own", "decode_sum", "encode", "scales"]

_NAN_BITS = 0x7FC00000
_LARGEST = torch.finfo(torch.float32).max


def scales(x: Tensor, table: Tensor, l2: bool, scale_bits: Tensor) -> None:
    """The norm of every block as the bit pattern of a float: max|x|, or sqrt(sum x^2) summed in float64.

    A block that is not finite has one NaN as its norm; an L2 norm beyond all floats is the largest float.
    """
    for offset, numel, _, scale, block, _ in table.view(-1, 6).tolist():
        for index, values in enumerate(blocks(x[offset : offset + numel], block)):
            scale_bits[scale + index] = _norm_bits(values, l2)


def encode(x: Tensor, table: Tensor, keys: Tensor, steps: Tensor, bits: int, payload: Tensor) -> None:
    """Rounds |x| / step up or down at random, so that the mean is x, and packs level + s in `bits` bits.

    Without keys nothing is drawn: levels are the nearest.
    """
    top, segments = (1 << (bits - 1)) - 1, table.view(-1, 6).tolist()
    for segment, key in zip(segments, keys.view(-1, 2).tolist() or [None] * len(segments), strict=True):
        offset, numel, row, *_, start = segment
        levels = _draw(x[offset : offset + numel], start, spread(steps, segment), top, key)
        padded = torch.nn.functional.pad(levels, (0, -numel % (ROW * field_rows(bits))))
        packed = pack_fields(padded + top, bits)
        first = row // field_rows(bits) * field_granule_bytes(bits)
        payload[first : first + packed.numel()] = packed


def add(payloads: Tensor, num_payloads: int, bits: int, sum_digits: int, words: Tensor) -> None:
    """Adds payloads as integers and packs the sums, 0 .. num_payloads * 2s, into 32-bit words."""
    codes = torch.stack([unpack_fields(payload, bits) for payload in payloads.view(num_payloads, -1)])
    pack_sums(codes.sum(0).view(-1, ROW), num_payloads * ((1 << bits) - 2) + 1, sum_digits, words)


def decode_own(
    payloads: Tensor, num_payloads: int, bits: int, table: Tensor, steps: Tensor, x: Tensor
) -> None:
    """Unpacks payloads (there may be more behind their codes) and adds them up: x = sum of level * step."""
    top = (1 << (bits - 1)) - 1
    rows, granule_bytes = payloads.view(num_payloads, -1), field_granule_bytes(bits)
    whole = rows.shape[1] // granule_bytes * granule_bytes
    total = torch.zeros_like(x)
    for rank, own_steps in enumerate(steps.view(num_payloads, -1)):
        one = torch.zeros_like(x)
        scatter_rows(unpack_fields(rows[rank, :whole], bits) - top, table, own_steps, one)
        total = one if rank == 0 else total + one
    for offset, numel, *_ in table.view(-1, 6).tolist():
        x[offset : offset + numel] = total[offset : offset + numel]


def _norm_bits(values: Tensor, l2: bool) -> int:
    largest = max_bits(values)
    if largest >= INF_BITS:
        return _NAN_BITS
    if not l2 or not values.numel():
        return largest
    norm = min(math.sqrt(ordered_sum(values.double().square())), _LARGEST)
    return int(torch.tensor(norm, dtype=torch.float64).float().view(torch.int32))


def _draw(values: Tensor, start: int, step: Tensor, top: int, key: list[int] | None) -> Tensor:
    """The level below, top - 1 at most; one more where u24 * (the float below step) * 2**-24 < the rest.

    The nearest level is what half a step more is rounded down to.
    """
    magnitude = values.abs()
    inverse = torch.where(step > 0, (1 / step).clamp(max=_LARGEST), 0.0)
    scaled = magnitude * inverse
    if key is None:
        nearest = (torch.where(scaled < top, scaled, float(top)) + 0.5).to(torch.int64)
        return torch.where(torch.signbit(values), -nearest, nearest)
    below = torch.where(scaled < top - 1, scaled, float(top - 1)).trunc()
    rest = magnitude - below * step
    unit = torch.where(step > 0, (step.view(torch.int32) - 1).view(torch.float32) * 2.0**-24, torch.inf)
    u24 = random24(counters(start, values.numel(), values.device), key[0], key[1])
    level = below.to(torch.int64) + (u24.float() * unit < rest)
    return torch.where(torch.signbit(values), -level, level)

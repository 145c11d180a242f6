"""TernGrad kernels in plain torch: statistics, stochastic ternarizing, packing, integer sums, decoding.

A lane is a sequence of rows of 32 elements; every tensor starts on a granule (`digits` rows). Digit k of
byte or word j of a granule is element 32 * k + j, the leading digit first. See docs/reference/wire.md.
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
    pack_sums,
    scatter_rows,
    spread,
)
from thinwire.kernels.reference.hashing import counters, random24
from thinwire.kernels.sizes import ROW

__all__ = ["add", "decode_own", "decode_sum", "encode", "scales"]

_CONSTANT = 2.0**-40  # variance below this share of the mean square is rounding: a constant layer


def scales(
    x: Tensor, table: Tensor, clip: float, scaler_is_bound: bool, scale_bits: Tensor, bounds: Tensor
) -> None:
    """The local scaler of every block as the bit pattern of a float, and the bound its values are clipped to.

    sigma  = sqrt(E[g^2] - E[g]^2)                  moments in float64
    bound  = c * sigma                              (infinite without clipping and for sigma = 0)
    scaler = max|clip(g)| = min(max|g|, c * sigma)  as in the paper, or
    scaler = c * sigma, bound infinite              as in the authors' code (`scaler_is_bound`)
    """
    for offset, numel, _, scale, block, _ in table.view(-1, 6).tolist():
        for index, values in enumerate(blocks(x[offset : offset + numel], block)):
            bits, bound = _scale_of_block(values, clip, scaler_is_bound)
            scale_bits[scale + index] = bits
            bounds[scale + index] = bound


def encode(
    x: Tensor, table: Tensor, keys: Tensor, scale: Tensor, bounds: Tensor, digits: int, payload: Tensor
) -> None:
    """Draws trits, P(trit != 0) = min(|g|, bound) / scale, and packs `digits` of them into a byte.

    Without keys nothing is drawn: a trit is not 0 where min(|g|, bound) > scale / 2.
    """
    segments = table.view(-1, 6).tolist()
    for segment, key in zip(segments, keys.view(-1, 2).tolist() or [None] * len(segments), strict=True):
        offset, numel, row, *_, start = segment
        values = x[offset : offset + numel]
        trits = _draw(values, start, spread(scale, segment), spread(bounds, segment), key)
        granule = ROW * digits
        padded = torch.nn.functional.pad(trits + 1, (0, -numel % granule), value=1)
        planes = padded.view(-1, digits, ROW)
        first = row // digits * ROW
        payload[first : first + planes.shape[0] * ROW] = _pack_bytes(planes, digits).flatten()


def add(payloads: Tensor, num_payloads: int, digits: int, sum_digits: int, words: Tensor) -> None:
    """Adds payloads as integers and packs the sums, 0 .. 2 * num_payloads, into 32-bit words."""
    total = _sum_rows(payloads.view(num_payloads, -1), digits)
    pack_sums(total, 2 * num_payloads + 1, sum_digits, words)


def decode_own(payload: Tensor, digits: int, table: Tensor, scale: Tensor, x: Tensor) -> None:
    """Unpacks one payload and scales it: x = trit * scale."""
    scatter_rows(_unpack_bytes(payload, digits).flatten() - 1, table, scale, x)


def _scale_of_block(values: Tensor, clip: float, scaler_is_bound: bool) -> tuple[int, float]:
    if values.numel() == 0:
        return 0, math.inf
    largest = max_bits(values)
    if largest >= INF_BITS or math.isinf(clip):
        return largest, math.inf
    n = values.numel()
    mean = ordered_sum(values.double()) / n
    mean_sq = ordered_sum(values.double().square()) / n
    variance = mean_sq - mean * mean
    if not variance > _CONSTANT * mean_sq:
        return largest, math.inf
    limit = torch.tensor(clip * math.sqrt(variance), dtype=torch.float64).float()
    if not limit > 0.0:
        return largest, math.inf
    limit_bits = int(limit.view(torch.int32))
    if scaler_is_bound:
        return limit_bits, math.inf
    return min(largest, limit_bits), float(limit)


def _draw(values: Tensor, start: int, scale: Tensor, bound: Tensor, key: list[int] | None) -> Tensor:
    """Trit = sign(g) where u24 * (the float below scale) * 2**-24 < min(|g|, bound), else 0."""
    magnitude = values.abs()
    clipped = torch.where(magnitude < bound, magnitude, bound)
    if key is None:
        hit = torch.where(scale > 0, scale * 0.5, torch.inf) < clipped
    else:
        below = (scale.view(torch.int32) - 1).view(torch.float32) * 2.0**-24
        unit = torch.where(scale > 0, below, torch.inf)
        u24 = random24(counters(start, values.numel(), values.device), key[0], key[1])
        hit = u24.float() * unit < clipped
    one = hit.to(torch.int64)
    return torch.where(torch.signbit(values), -one, one)


def _pack_bytes(planes: Tensor, digits: int) -> Tensor:
    """(granules, digits, 32) to (granules, 32) bytes: base 3 as the fraction floor(v * 256 / 243) + 1."""
    radix = 3 if digits == 5 else 4
    value = torch.zeros_like(planes[:, 0])
    for k in range(digits):
        value = value * radix + planes[:, k]
    return (value * 256 // 243 + 1 if digits == 5 else value).to(torch.uint8)


def _unpack_bytes(payload: Tensor, digits: int) -> Tensor:
    """Bytes to rows of 32 digits."""
    radix = 3 if digits == 5 else 4
    fraction = payload.view(-1, 1, ROW).to(torch.int64)
    planes = []
    for _ in range(digits):
        fraction = fraction * radix
        planes.append(fraction >> 8)
        fraction = fraction & 255
    return torch.cat(planes, dim=1).view(-1, ROW)


def _sum_rows(payloads: Tensor, digits: int) -> Tensor:
    total = _unpack_bytes(payloads[0], digits)
    for payload in payloads[1:]:
        total = total + _unpack_bytes(payload, digits)
    return total

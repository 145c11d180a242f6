"""Ternary kernels in plain torch: statistics, stochastic ternarizing, packing, integer sums, decoding.

A lane is a sequence of rows of 32 elements; every tensor starts on a granule (`digits` rows). Digit k of
byte or word j of a granule is element 32 * k + j, the leading digit first. See docs/wire.md.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from thinwire.kernels.reference.hashing import counters, random24

ROW = 32
_LANES = 16  # accumulators of the moments; part of the definition of sigma's bits
_INF_BITS = 0x7F800000


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
        for index, values in enumerate(_blocks(x[offset : offset + numel], block)):
            bits, bound = _scale_of_block(values, clip, scaler_is_bound)
            scale_bits[scale + index] = bits
            bounds[scale + index] = bound


def encode(
    x: Tensor, table: Tensor, keys: Tensor, scale: Tensor, bounds: Tensor, digits: int, payload: Tensor
) -> None:
    """Draws trits, P(trit != 0) = min(|g|, bound) / scale, and packs `digits` of them into a byte."""
    for segment, key in zip(table.view(-1, 6).tolist(), keys.view(-1, 2).tolist(), strict=True):
        offset, numel, row, *_, start = segment
        values = x[offset : offset + numel]
        trits = _draw(values, start, _spread(scale, segment), _spread(bounds, segment), key)
        granule = ROW * digits
        padded = torch.nn.functional.pad(trits + 1, (0, -numel % granule), value=1)
        planes = padded.view(-1, digits, ROW)
        first = row // digits * ROW
        payload[first : first + planes.shape[0] * ROW] = _pack_bytes(planes, digits).flatten()


def add(payloads: Tensor, num_payloads: int, digits: int, sum_digits: int, words: Tensor) -> None:
    """Adds payloads as integers and packs the sums, 0 .. 2 * num_payloads, into 32-bit words."""
    total = _sum_rows(payloads.view(num_payloads, -1), digits)
    base = 2 * num_payloads + 1
    padded = torch.nn.functional.pad(total, (0, 0, 0, -total.shape[0] % sum_digits))
    value = torch.zeros(padded.shape[0] // sum_digits, ROW, dtype=torch.int64, device=payloads.device)
    for k in range(sum_digits):
        value = value * base + padded.view(-1, sum_digits, ROW)[:, k]
    words.copy_(_fraction32(value, base**sum_digits).flatten())


def decode_sum(
    words: Tensor,
    num_shards: int,
    rows_per_shard: int,
    num_summands: int,
    sum_digits: int,
    table: Tensor,
    steps: Tensor,
    x: Tensor,
) -> None:
    """Unpacks sums and scales them: x = (digit - N) * step."""
    fraction = words.view(num_shards, -1, 1, ROW).to(torch.int64) & 0xFFFFFFFF
    planes = []
    for _ in range(sum_digits):
        fraction = fraction * (2 * num_summands + 1)
        planes.append((fraction >> 32) - num_summands)
        fraction = fraction & 0xFFFFFFFF
    rows = torch.cat(planes, dim=2).flatten(1, 2)[:, :rows_per_shard].flatten()
    _scatter_rows(rows, table, steps, x)


def decode_own(payload: Tensor, digits: int, table: Tensor, scale: Tensor, x: Tensor) -> None:
    """Unpacks one payload and scales it: x = trit * scale."""
    _scatter_rows(_unpack_bytes(payload, digits).flatten() - 1, table, scale, x)


def _blocks(values: Tensor, block: int) -> tuple[Tensor, ...]:
    if block == 0:
        return (values,)
    return tuple(values[first : first + block] for first in range(0, values.numel(), block))


def _scale_of_block(values: Tensor, clip: float, scaler_is_bound: bool) -> tuple[int, float]:
    if values.numel() == 0:
        return 0, math.inf
    max_bits = int((values.contiguous().view(torch.int32) & 0x7FFFFFFF).max())
    if max_bits >= _INF_BITS or math.isinf(clip):
        return max_bits, math.inf
    n = values.numel()
    mean = _ordered_sum(values.double()) / n
    variance = _ordered_sum(values.double().square()) / n - mean * mean
    if not variance > 0.0:
        return max_bits, math.inf
    limit = torch.tensor(clip * math.sqrt(variance), dtype=torch.float64).float()
    if not limit > 0.0:
        return max_bits, math.inf
    limit_bits = int(limit.view(torch.int32))
    if scaler_is_bound:
        return limit_bits, math.inf
    return min(max_bits, limit_bits), float(limit)


def _ordered_sum(values: Tensor) -> float:
    """Element i goes to accumulator i mod 16 in ascending order; the accumulators are then folded in halves."""
    padded = torch.nn.functional.pad(values, (0, -values.numel() % _LANES))
    lanes = padded.view(-1, _LANES).cumsum(0)[-1]
    while lanes.numel() > 1:
        half = lanes.numel() // 2
        lanes = lanes[:half] + lanes[half:]
    return float(lanes)


def _spread(per_block: Tensor, segment: list[int]) -> Tensor:
    """One value per element of a segment (or one for all) from one value per block of its tensor."""
    _, numel, _, scale, block, start = segment
    if block == 0:
        return per_block[scale]
    first, last = start // block, -(-(start + numel) // block)
    spread = per_block[scale + first : scale + last].repeat_interleave(block)
    return spread[start - first * block :][:numel]


def _draw(values: Tensor, start: int, scale: Tensor, bound: Tensor, key: list[int]) -> Tensor:
    """Trit = sign(g) where u24 * (the float below scale) * 2**-24 < min(|g|, bound), else 0."""
    below = (scale.view(torch.int32) - 1).view(torch.float32) * 2.0**-24
    unit = torch.where(scale > 0, below, torch.inf)
    u24 = random24(counters(start, values.numel(), values.device), key[0], key[1])
    magnitude = values.abs()
    clipped = torch.where(magnitude < bound, magnitude, bound)
    hit = u24.float() * unit < clipped
    return torch.where(hit, values.sign(), 0.0).to(torch.int64)


def _pack_bytes(planes: Tensor, digits: int) -> Tensor:
    """(granules, digits, 32) digits to (granules, 32) bytes: base 3 as the fraction floor(v * 256 / 243) + 1."""
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


def _fraction32(value: Tensor, limit: int) -> Tensor:
    """The word floor(value * 2**32 / limit) + 1 as int32, by two 16-bit steps of long division."""
    high, rest = (value << 16) // limit, (value << 16) % limit
    word = (high << 16) + (rest << 16) // limit + 1
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)


def _scatter_rows(rows: Tensor, table: Tensor, steps: Tensor, x: Tensor) -> None:
    for segment in table.view(-1, 6).tolist():
        offset, numel, row = segment[:3]
        level = rows[row * ROW : row * ROW + numel].to(torch.float32)
        x[offset : offset + numel] = level * _spread(steps, segment)

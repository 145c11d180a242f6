"""Natural compression in plain torch: exponents rounded at random, and signs.

A row of the table is (offset, numel, start): a piece of the buffer, and where it begins in the stream of all
pieces end to end. A payload is the exponents of the stream, a byte each, then its signs, a bit each.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from thinwire.kernels.reference.hashing import counters, random24

__all__ = ["decode", "encode"]

MANTISSA, INFINITE = (1 << 23) - 1, 255


def encode(x: Tensor, table: Tensor, keys: Tensor, payload: Tensor, /) -> None:
    """Exponent e + 1 with probability m, else e, of x = s 2^e (1 + m); 254 at most; 255: not finite."""
    numel = _numel(table)
    signs = torch.zeros(-(-numel // 8) * 8, dtype=torch.uint8, device=x.device)
    for (offset, count, start), key in zip(_rows(table), keys.view(-1, 2).tolist(), strict=True):
        pattern = x[offset : offset + count].contiguous().view(torch.int32)
        exponent, mantissa = (pattern >> 23) & INFINITE, pattern & MANTISSA
        up = random24(counters(0, count, x.device), key[0], key[1]) >> 1 < mantissa
        rounded = torch.where(exponent < INFINITE, (exponent + up).clamp(max=INFINITE - 1), INFINITE)
        payload[start : start + count] = rounded.to(torch.uint8)
        signs[start : start + count] = pattern < 0
    payload[numel : numel + signs.numel() // 8] = (signs.view(-1, 8) * _bit(x)).sum(1, dtype=torch.uint8)


def decode(payloads: Tensor, num_payloads: int, table: Tensor, x: Tensor, /) -> None:
    """x = the mean, in the order of the payloads, of what they stand for."""
    rows, numel = payloads.view(num_payloads, -1), _numel(table)
    exponents = rows[:, :numel].to(torch.int32)
    signs = (rows[:, numel : numel + -(-numel // 8), None] & _bit(x) > 0).flatten(1)[:, :numel]
    powers = (exponents << 23).view(torch.float32)
    values = torch.where(exponents < INFINITE, torch.where(signs, -powers, powers), math.nan)
    total = values[0]
    for own in values[1:]:
        total = total + own
    for offset, count, start in _rows(table):
        x[offset : offset + count] = total[start : start + count] / num_payloads


def _rows(table: Tensor) -> list[list[int]]:
    found: list[list[int]] = table.view(-1, 3).tolist()
    return found


def _numel(table: Tensor) -> int:
    return sum(count for _, count, _ in _rows(table))


def _bit(like: Tensor) -> Tensor:
    return torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8, device=like.device)

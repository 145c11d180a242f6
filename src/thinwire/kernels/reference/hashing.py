"""Counter-based random integers in int32 torch arithmetic, the same on every device."""

from __future__ import annotations

import torch
from torch import Tensor

_M1 = 0x7FEB352D
_M2 = 0x846CA68B - (1 << 32)  # as a signed int32


def _shift_right(h: Tensor, bits: int) -> Tensor:
    """Logical shift: torch shifts int32 arithmetically."""
    return (h >> bits) & ((1 << (32 - bits)) - 1)


def random24(counter: Tensor, k0: int, k1: int) -> Tensor:
    """24 random bits for every int32 counter under a two-word key.

    h = c ^ k0; h ^= h >> 16; h *= 0x7feb352d; h ^= k1; h ^= h >> 15; h *= 0x846ca68b; h ^= h >> 16; h >> 8

    The second key word enters between the multiplications: with one xor-ed key alone the streams of two
    ranks would be permutations of one another.
    """
    h = counter ^ _signed(k0)
    h = (h ^ _shift_right(h, 16)) * _M1
    h = h ^ _signed(k1)
    h = (h ^ _shift_right(h, 15)) * _M2
    h = h ^ _shift_right(h, 16)
    return _shift_right(h, 8)


def counters(start: int, count: int, device: torch.device) -> Tensor:
    """The int32 counters start, start + 1, ... modulo 2**32."""
    ramp = torch.arange(start, start + count, dtype=torch.int64, device=device)
    return ramp.to(torch.int32)


def _signed(word: int) -> int:
    return word - (1 << 32) if word >= 1 << 31 else word

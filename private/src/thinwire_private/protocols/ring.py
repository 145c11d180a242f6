"""Rings Z_{2^l} on uint64 arrays."""

from __future__ import annotations

import numpy as np

from thinwire_private.net.value import IntArray
from thinwire_private.ot.prg import Bytes, Words


def mask(width: int) -> np.uint64:
    """2^width - 1."""
    return np.uint64((1 << width) - 1)


def reduce(values: Words, width: int) -> Words:
    """values mod 2^width."""
    return values & mask(width)


def negate_if(values: Words, bits: Bytes, width: int) -> Words:
    """values * (1 - 2 * bit) mod 2^width."""
    sign = np.uint64(0) - bits.astype(np.uint64)  # 0 or all ones
    return reduce((values ^ sign) - sign, width)


def keep_if(values: Words, bits: Bytes) -> Words:
    """values * bit."""
    return values & (np.uint64(0) - bits.astype(np.uint64))


def top_bit(values: Words, width: int) -> Bytes:
    """Bit width - 1 of every value."""
    return ((values >> np.uint64(width - 1)) & np.uint64(1)).astype(np.uint8)


def encode(values: IntArray, width: int) -> Words:
    """Integers as ring elements (two's complement)."""
    return reduce(values.astype(np.int64).reshape(-1).view(np.uint64), width)


def decode(values: Words, width: int, signed: bool) -> IntArray:
    """Ring elements as integers."""
    numbers = reduce(values, width).view(np.int64)
    return numbers - (numbers >> (width - 1) << width) if signed and width < 64 else numbers

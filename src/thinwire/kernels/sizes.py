"""Sizes that kernels and coders must agree on: rows, granules, words. csrc/lane.h has the same numbers."""

from __future__ import annotations

import math

ROW = 32  # elements


def field_rows(bits: int) -> int:
    """Rows of a granule of fields of `bits` bits: as few as fill whole 32-bit words.

    >>> [field_rows(bits) for bits in range(1, 9)]
    [32, 16, 32, 8, 32, 16, 32, 4]
    """
    return 32 // math.gcd(bits, 32)


def field_granule_bytes(bits: int) -> int:
    return ROW * bits * field_rows(bits) // 8


def stream_bytes(numel: int, bits: int) -> int:
    """Bytes of that many codes end to end: whole rows of 32, whole words of 32 columns.

    >>> stream_bytes(1, 10), stream_bytes(6_553_600, 10)
    (128, 8192000)
    """
    return 4 * ROW * -(-(-(-numel // ROW) * bits) // 32)


def high_bits(chunk: int, k: int, low_bits: int) -> int:
    """Bits that the high parts of a chunk's k indices take (Elias-Fano)."""
    highest = (chunk - 1) >> low_bits
    if highest == 0 or k == chunk:
        return 0
    return chunk if low_bits == 0 else highest + k


def digits_per_word(base: int) -> int:
    """How many digits of a base fit in a 32-bit word.

    >>> [digits_per_word(2 * n + 1) for n in (1, 2, 4, 8)]
    [20, 13, 10, 7]
    """
    digits, product = 0, base
    while product <= 1 << 32:
        digits, product = digits + 1, product * base
    return digits

"""Ring-LWE in plain Python integers: what the native core must equal bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

DEGREE = 4096
SLOT_BYTES = 32  # a coefficient of a product takes less than 2^255


def multiply(a: Sequence[int], b: Sequence[int]) -> list[int]:
    """a b mod X^N + 1 over the integers, as one product of two long numbers (Kronecker)."""
    bound = 1 << (8 * SLOT_BYTES - 1)
    bounds = int.from_bytes(bound.to_bytes(SLOT_BYTES, "little") * (2 * DEGREE), "little")
    product = _number(a) * _number(b) + bounds
    raw = product.to_bytes(SLOT_BYTES * 2 * DEGREE + 1, "little")
    slots = (raw[SLOT_BYTES * i : SLOT_BYTES * (i + 1)] for i in range(2 * DEGREE))
    whole = [int.from_bytes(slot, "little") - bound for slot in slots]
    return [low - high for low, high in zip(whole[:DEGREE], whole[DEGREE:], strict=True)]


def _number(coefficients: Sequence[int]) -> int:
    """The polynomial at X = 2^256."""
    positive = b"".join(max(c, 0).to_bytes(SLOT_BYTES, "little") for c in coefficients)
    negative = b"".join(max(-c, 0).to_bytes(SLOT_BYTES, "little") for c in coefficients)
    return int.from_bytes(positive, "little") - int.from_bytes(negative, "little")


def ternary(random: Sequence[int]) -> list[int]:
    return [(3 * word >> 64) - 1 for word in random]


def binomial(random: Sequence[int]) -> list[int]:
    half = (1 << 21) - 1
    return [(word & half).bit_count() - (word >> 21 & half).bit_count() for word in random]


def encrypt(
    s: Sequence[int], a: Sequence[int], random: Sequence[int], message: Sequence[int], k: int, width: int
) -> list[int]:
    masks, errors = multiply(a, s), binomial(random)
    parts = zip(masks, errors, message, strict=True)
    return [(error - mask + (m << (k - width))) % (1 << k) for mask, error, m in parts]


def answer(
    c0: Sequence[int],
    c1: Sequence[int],
    random: Sequence[int],
    flood: Sequence[int],
    places: Sequence[int],
    k: int,
    width: int,
    f: int,
) -> tuple[list[int], list[int], list[int]]:
    """(top, share, low)."""
    top = [_rounded(c + e, k, width + 9) for c, e in zip(c1, binomial(random), strict=True)]
    noise = (number % (1 << f) - (1 << (f - 1)) for number in flood)
    values = [_rounded(c0[place] + n, k, width + 5) for place, n in zip(places, noise, strict=True)]
    return top, [value >> 5 for value in values], [value & 31 for value in values]


def decrypt(
    s: Sequence[int], top: Sequence[int], low: Sequence[int], places: Sequence[int], width: int
) -> list[int]:
    product = multiply(top, s)
    values = (product[place] + (bits << 4) for place, bits in zip(places, low, strict=True))
    return [(value + 256 >> 9) % (1 << width) for value in values]


def _rounded(value: int, k: int, bits: int) -> int:
    cut = k - bits
    return (value + (1 << (cut - 1)) >> cut) % (1 << bits)

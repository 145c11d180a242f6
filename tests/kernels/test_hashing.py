"""The hash in torch arithmetic is the hash of docs/reference/wire.md in plain integers."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.kernels.reference.hashing import counters, random24

MASK = 0xFFFFFFFF
word = st.integers(0, MASK)


def plain(c: int, k0: int, k1: int) -> int:
    h = (c ^ k0) & MASK
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & MASK
    h ^= k1
    h = ((h ^ (h >> 15)) * 0x846CA68B) & MASK
    return (h ^ (h >> 16)) >> 8


@given(start=st.integers(0, MASK - 64), k0=word, k1=word)
def test_torch_and_plain_integers_agree(start: int, k0: int, k1: int) -> None:
    found = random24(counters(start, 64, torch.device("cpu")), k0, k1).tolist()
    assert found == [plain(c, k0, k1) for c in range(start, start + 64)]


def test_signed_key_words_are_the_same_words() -> None:
    """Kernels get keys as int32: 0xFFFFFFFF and -1 are one word."""
    ramp = counters(0, 1000, torch.device("cpu"))
    assert torch.equal(random24(ramp, MASK, 1 << 31), random24(ramp, -1, -(1 << 31)))


def test_counters_wrap_at_32_bits() -> None:
    assert counters(MASK, 3, torch.device("cpu")).tolist() == [-1, 0, 1]

"""Packing: exact sizes, every width, and the same layout as a plain sketch of it."""

from __future__ import annotations

import numpy as np
import pytest

from thinwire_private.ot.primitives import pack, pack_small, packed_bytes, unpack, unpack_small


def plain_pack(values: list[int], width: int) -> bytes:
    """The layout in words: blocks of 256 values in lanes, the rest one bit stream, all little-endian."""
    word = 32 if width <= 32 else 64
    lanes, out, whole = 256 // word, b"", len(values) // 256 * 256
    for start in range(0, whole, 256):
        streams = [
            sum(values[start + row * lanes + lane] << (row * width) for row in range(word))
            for lane in range(lanes)
        ]
        for place in range(width):
            for stream in streams:
                out += ((stream >> (place * word)) % 2**word).to_bytes(word // 8, "little")
    rest = values[whole:]
    bits = sum(value << (place * width) for place, value in enumerate(rest))
    return out + bits.to_bytes(packed_bytes(len(rest), width), "little")


@pytest.mark.parametrize("width", range(1, 65))
def test_values_come_back_and_lie_where_they_should(width: int) -> None:
    generator = np.random.default_rng(width)
    for count in (0, 1, 255, 256, 521):
        values = generator.integers(0, 2**64, count, dtype=np.uint64) & np.uint64(2**width - 1)
        wire = pack(values, width)
        assert len(wire) == packed_bytes(count, width)
        assert bytes(wire) == plain_pack([int(value) for value in values], width)
        assert np.array_equal(unpack(wire, count, width), values)


def test_high_bits_are_cut_off() -> None:
    values = np.full(300, 2**64 - 1, np.uint64)
    assert set(unpack(pack(values, 5), 300, 5).tolist()) == {31}


@pytest.mark.parametrize("width", [1, 2, 4, 8])
def test_small_values(width: int) -> None:
    for count in (0, 1, 3, 8, 1001):
        values = np.random.default_rng(count).integers(0, 2**width, count).astype(np.uint8)
        wire = pack_small(values, width)
        assert len(wire) == packed_bytes(count, width)
        whole = sum(int(value) << (place * width) for place, value in enumerate(values))
        assert bytes(wire) == whole.to_bytes(len(wire), "little")
        assert np.array_equal(unpack_small(wire, count, width), values)


def test_a_message_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="another size"):
        unpack(memoryview(b"12345"), 10, 5)

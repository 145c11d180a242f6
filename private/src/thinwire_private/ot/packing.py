"""Exact-width packing: numbers of l bits take l bits on the wire, rounded up to a byte per message."""

from __future__ import annotations

import numpy as np

from thinwire_private.ot.native import native
from thinwire_private.ot.prg import Bytes, Words, as_bytes


def packed_bytes(count: int, width: int) -> int:
    """Bytes of `count` numbers of `width` bits.

    >>> packed_bytes(1000, 18)
    2250
    """
    return -(-count * width // 8)


def pack(values: Words, width: int) -> memoryview:
    """The low `width` bits of every number; full blocks of 256 lie in lanes (private/csrc/packing.h)."""
    wire = np.empty(packed_bytes(values.size, width), np.uint8)
    native().pack(np.ascontiguousarray(values).reshape(-1), width, wire)
    return wire.data


def unpack(wire: memoryview, count: int, width: int) -> Words:
    """The numbers of a message."""
    values = np.empty(count, np.uint64)
    native().unpack(as_bytes(wire), width, values)
    return values


def pack_small(values: Bytes, width: int) -> memoryview:
    """Numbers of 1, 2, 4 or 8 bits, held in bytes, as one plain little-endian bit stream."""
    if width == 1:
        return np.packbits(values.reshape(-1), bitorder="little").data
    each = 8 // width
    padded = np.zeros(-(-values.size // each) * each, np.uint8)
    padded[: values.size] = values.reshape(-1)
    wire = padded[0::each].copy()
    for place in range(1, each):
        wire |= padded[place::each] << np.uint8(place * width)
    return wire.data


def unpack_small(wire: memoryview, count: int, width: int) -> Bytes:
    """The numbers of such a stream."""
    data = as_bytes(wire)
    if width == 1:
        return np.unpackbits(data, count=count, bitorder="little")
    each = 8 // width
    mask = np.uint8((1 << width) - 1)
    places = [(data >> np.uint8(place * width)) & mask for place in range(each)]
    return np.stack(places, axis=1).reshape(-1)[:count]

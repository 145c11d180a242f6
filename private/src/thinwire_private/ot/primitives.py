"""What every OT is built on: the native core, key derivation, randomness, packing to the bit.

Nothing else imports `thinwire_private._native`.
"""

from __future__ import annotations

import hashlib
import importlib
import secrets
from functools import cache
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from thinwire_private.errors import MissingError

NOT_BUILT = (
    "private inference needs its native module: install thinwire-private where a C++17 compiler is installed"
)
PROTOCOL = b"thinwire private 1"
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
SEED_BYTES = 16


@cache
def native() -> ModuleType:
    """The module, with OpenSSL's libcrypto opened."""
    try:
        module = importlib.import_module("thinwire_private._native")
    except ImportError:
        raise MissingError(NOT_BUILT) from None
    problem = module.open_libcrypto()
    if problem:
        raise MissingError(f"private inference needs AES: {problem}")
    return module


def derive(session: bytes, label: str, *parts: bytes) -> bytes:
    """64 bytes bound to the session, the label and the parts; lengths are hashed too, so nothing can
    slide."""
    digest = hashlib.sha512(PROTOCOL)
    for part in (session, label.encode(), *parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()


def as_bytes(data: bytes | bytearray | memoryview) -> Bytes:
    """A flat view of bytes for the native core."""
    return np.frombuffer(data, dtype=np.uint8)


class Prg:
    """A stream of random numbers; a given seed is for tests, else the operating system gives one."""

    def __init__(self, seed: bytes | None = None) -> None:
        self._stream = native().Prg(as_bytes(secrets.token_bytes(SEED_BYTES) if seed is None else seed))

    def take(self, num_bytes: int) -> Bytes:
        """The next bytes."""
        out = np.empty(num_bytes, np.uint8)
        self._stream.fill(out)
        return out

    def bits(self, count: int) -> Bytes:
        """Random bits, one per byte."""
        return np.unpackbits(self.take(-(-count // 8)), count=count, bitorder="little")

    def ring(self, count: int, width: int) -> Words:
        """Random elements of Z_{2^width}."""
        return self.take(8 * count).view(np.uint64) & np.uint64((1 << width) - 1)


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

"""Prg: a party's own randomness, AES-CTR under a seed that the operating system gave."""

from __future__ import annotations

import secrets

import numpy as np
from numpy.typing import NDArray

from thinwire_private.ot.native import native

Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]
SEED_BYTES = 16


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

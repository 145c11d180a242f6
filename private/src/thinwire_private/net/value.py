"""Value: what travels between two nodes of a graph, integers of one shape and a known number of bits."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Value:
    """Integers of one shape (without the batch axis).

    An activation is unsigned, 0 <= x < 2^bits: its sign is known, so protocols may keep it in bits + 1 bits
    with a top bit that is surely 0. An accumulator is signed: -2^(bits-1) <= x < 2^(bits-1).
    """

    shape: tuple[int, ...]
    bits: int
    signed: bool

    @property
    def size(self) -> int:
        """Number of integers."""
        return prod(self.shape)

    @property
    def low(self) -> int:
        """The smallest integer that fits."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The largest integer that fits."""
        return (1 << (self.bits - self.signed)) - 1


def activation(shape: tuple[int, ...], bits: int) -> Value:
    """An unsigned value of l_x = `bits` bits."""
    return Value(shape, bits, signed=False)


def accumulator(shape: tuple[int, ...], bits: int) -> Value:
    """A signed value of l_acc = `bits` bits."""
    return Value(shape, bits, signed=True)

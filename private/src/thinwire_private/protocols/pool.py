"""Pools and argmax: the largest of several shared numbers by a tournament; sums are local."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.b2a import Mux
from thinwire_private.protocols.operator import Messages, Operator, Party, reduce
from thinwire_private.protocols.sign import Msb, Relu


def _rounds(size: int) -> list[int]:
    """Pairs that meet in every round of a tournament."""
    pairs = []
    while size > 1:
        pairs.append(size // 2)
        size -= size // 2
    return pairs


@dataclass(frozen=True)
class Max(Operator):
    """The largest of `size` numbers, `count` times; their differences must fit the ring.

    Round by round, pairs (a, b): max = b + ReLU(a - b). Cost: size - 1 times Mill(l - 1) + 2 (c2 + l).
    """

    count: int
    size: int
    width: int
    kind: OtKind

    @property
    def _steps(self) -> list[Relu]:
        return [Relu(self.count * pairs, self.width, self.kind) for pairs in _rounds(self.size)]

    def messages(self) -> Messages:
        return tuple(message for step in self._steps for message in step.messages())

    def run(self, party: Party, x: Words) -> Words:
        """Shares of the maxima; x (size, count)."""
        for step in self._steps:
            pairs = step.count // self.count
            a, b = x[:pairs], x[pairs : 2 * pairs]
            higher = step.run(party, reduce(a - b, self.width).reshape(-1)).reshape(pairs, self.count)
            x = np.concatenate([reduce(b + higher, self.width), x[2 * pairs :]])
        highest: Words = x[0]
        return highest


@dataclass(frozen=True)
class Argmax(Operator):
    """Where the largest of `size` numbers is, `count` times; of equal ones the first.

    Round by round, pairs (a, b), a before b: c = [a < b]; value and index move by MUX(c, b - a).
    Cost: size - 1 times Mill(l - 1) + 2 (2 c2 + l + index bits).
    """

    count: int
    size: int
    width: int
    kind: OtKind

    @property
    def index_bits(self) -> int:
        """Bits of an index."""
        return max(1, (self.size - 1).bit_length())

    @property
    def _steps(self) -> list[tuple[Msb, Mux, Mux]]:
        counts = [self.count * pairs for pairs in _rounds(self.size)]
        return [
            (
                Msb(count, self.width, self.kind),
                Mux(count, self.width, self.kind),
                Mux(count, self.index_bits, self.kind),
            )
            for count in counts
        ]

    def messages(self) -> Messages:
        return tuple(m for steps in self._steps for step in steps for m in step.messages())

    def run(self, party: Party, x: Words) -> Words:
        """Shares of the indices mod 2^index_bits; x (size, count)."""
        places = np.repeat(np.arange(self.size, dtype=np.uint64)[:, None], self.count, axis=1)
        index = party.only(0, places)
        for msb, move, move_index in self._steps:
            pairs = msb.count // self.count
            # Neighbours meet, so that of two equal numbers the first always stands on the left.
            a, b = x[0 : 2 * pairs : 2], x[1 : 2 * pairs : 2]
            i, j = index[0 : 2 * pairs : 2], index[1 : 2 * pairs : 2]
            less = msb.run(party, reduce(a - b, self.width).reshape(-1))
            x_step = move.run(party, less, reduce(b - a, self.width).reshape(-1)).reshape(a.shape)
            i_step = move_index.run(party, less, reduce(j - i, self.index_bits).reshape(-1)).reshape(a.shape)
            x = np.concatenate([reduce(a + x_step, self.width), x[2 * pairs :]])
            index = np.concatenate([reduce(i + i_step, self.index_bits), index[2 * pairs :]])
        place: Words = index[0]
        return place

"""Wrap, Msb, Relu: what a comparison says about shares."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import SERVER
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, Words
from thinwire_private.protocols.b2a import Mux
from thinwire_private.protocols.comparison import Comparison, Mill
from thinwire_private.protocols.lookup import Column, Lookup
from thinwire_private.protocols.operator import Messages, Operator, Party, mask, reduce, top_bit
from thinwire_private.protocols.triples import Stock, TripleMaker


def wrap_input(party: Party, x: Words, width: int) -> Words:
    """What a party compares to find the wrap of its low `width` bits: x0, and 2^l - 1 - x1.

    x0 + x1 >= 2^l exactly when x0 > 2^l - 1 - x1.
    """
    low = reduce(x, width)
    return low if party.is_server else mask(width) - low


@dataclass(frozen=True)
class Wrap(Operator):
    """[x0 + x1 >= 2^l] as a shared bit. Cost: Mill(l)."""

    count: int
    width: int
    kind: OtKind
    ahead: bool = False  # triples were made before

    @property
    def _mill(self) -> Comparison:
        return Mill(self.count, self.width, self.kind, self.ahead)

    @property
    def maker(self) -> TripleMaker:
        """Makes those triples."""
        return self._mill.maker

    def messages(self) -> Messages:
        return self._mill.messages()

    def run(self, party: Party, x: Words, stock: Stock | None = None) -> Bytes:
        """Shares of the wrap of the low l bits of x."""
        return self._mill.run(party, [wrap_input(party, x, self.width)], stock)[0]


@dataclass(frozen=True)
class WrapMsbKnown(Operator):
    """The wrap when the top bit m of x is already shared, as in SiRNN: with t_i the top bit of x_i it is
    t0 or t1 where m = 0, and t0 and t1 where m = 1: one 1-of-4 lookup by (m1, t1).

    Cost: OT_4(1 bit): 260 bits with KK13.
    """

    count: int
    width: int
    kind: OtKind

    @property
    def _lookup(self) -> Lookup:
        return Lookup((Column(self.count, 2, 1),), SERVER, self.kind)

    def messages(self) -> Messages:
        return self._lookup.messages()

    def run(self, party: Party, x: Words, msb: Bytes | None = None) -> Bytes:
        """Shares of the wrap; msb: shares of the top bit, None where it is known to be 0."""
        top = top_bit(x, self.width)
        own = np.zeros_like(top) if msb is None else msb
        if not party.is_server:
            return self._lookup.receive(party, [own | top << np.uint8(1)])[0]
        share = party.prg.bits(self.count)
        table = np.empty((self.count, 4), np.uint8)
        for entry in range(4):
            is_one, theirs = own ^ (entry & 1), entry >> 1
            table[:, entry] = np.where(is_one, top & theirs, top | theirs) ^ share
        self._lookup.send(party, [table])
        return share


@dataclass(frozen=True)
class Msb(Operator):
    """The top bit of x: msb(x0) xor msb(x1) xor wrap of the l - 1 bits below. DReLU is its complement.

    Cost: Mill(l - 1).
    """

    count: int
    width: int
    kind: OtKind

    @property
    def _wrap(self) -> Wrap:
        return Wrap(self.count, self.width - 1, self.kind)

    def messages(self) -> Messages:
        return self._wrap.messages()

    def run(self, party: Party, x: Words) -> Bytes:
        """Shares of the top bit."""
        return top_bit(x, self.width) ^ self._wrap.run(party, x)


@dataclass(frozen=True)
class Relu(Operator):
    """max(0, x): 1. DReLU; 2. MUX.

    Cost: Mill(l - 1) + 2 (c2 + l); `chosen`, as SCI: Mill(l - 1) + 2 (c2 + 2 l).
    """

    count: int
    width: int
    kind: OtKind
    chosen: bool = False

    @property
    def _msb(self) -> Msb:
        return Msb(self.count, self.width, self.kind)

    @property
    def _mux(self) -> Mux:
        return Mux(self.count, self.width, self.kind, self.chosen)

    def messages(self) -> Messages:
        return self._msb.messages() + self._mux.messages()

    def run(self, party: Party, x: Words) -> Words:
        """Shares of max(0, x) mod 2^l."""
        positive = self._msb.run(party, x) ^ np.uint8(party.is_server)
        return self._mux.run(party, positive, x)

"""Conjunction: e g and, for some, e f of shared bits: what joins two digits of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import crossing
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.packing import pack_small, packed_bytes, unpack_small
from thinwire_private.ot.prg import Bytes
from thinwire_private.protocols.cot_bits import CotBits
from thinwire_private.protocols.operator import Messages, Operator
from thinwire_private.protocols.party import Party
from thinwire_private.protocols.triples import Stock, Triples


@dataclass(frozen=True)
class Conjunction(Operator):
    """`single` + `double` shared bits e; for all e g, for the first `double` also e f.

    With triples (KK13, or `ahead`: made offline): 1. Both open d = e xor a and h = g xor b, crossing.
    2. z = c xor d b xor h a (xor d h at the server). Cost: 4 bits per AND, 6 for a double one of paired
       triples.
    Else CotBits: 2 (c2 + 1) bits, 2 (c2 + 2) for a double one.
    """

    single: int
    double: int
    kind: OtKind
    ahead: bool = False

    @property
    def _opened_bits(self) -> int:
        count = self.single + self.double
        return 2 * count + self.double * (2 if self.kind.kk13 else 1)

    def messages(self) -> Messages:
        if not (self.kind.kk13 or self.ahead):
            return CotBits(self.single, self.double, self.kind).messages()
        size = packed_bytes(self._opened_bits, 1)
        return crossing((size, size))

    def run(self, party: Party, e: Bytes, g: Bytes, f: Bytes, stock: Stock | None) -> tuple[Bytes, Bytes]:
        """Shares of (e g, e[:double] f)."""
        if stock is None:
            product = CotBits(self.single, self.double, self.kind).run(party, e, g, f)
        else:
            product = self._with_triples(
                party, e, np.concatenate([g, f]), stock.take(self.single, self.double)
            )
        return product[: e.size], product[e.size :]

    def _with_triples(self, party: Party, e: Bytes, y: Bytes, triples: Triples) -> Bytes:
        x = e if triples.paired else np.concatenate([e, e[: self.double]])
        own = np.concatenate([x ^ triples.a[: x.size], y ^ triples.b])
        opened = own ^ unpack_small(party.channel.exchange(pack_small(own, 1)), own.size, 1)
        d, h = opened[: x.size], opened[x.size :]
        if triples.paired:
            d = np.concatenate([d, d[: self.double]])
        z: Bytes = triples.c ^ (d & triples.b) ^ (h & triples.a)
        return z ^ (d & h) if party.is_server else z

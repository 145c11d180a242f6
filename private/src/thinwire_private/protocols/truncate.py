"""Truncate and Ars: shifts to the right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.prg import Words
from thinwire_private.protocols.b2a import B2A
from thinwire_private.protocols.extend import Extend
from thinwire_private.protocols.operator import Messages, Operator
from thinwire_private.protocols.party import Party
from thinwire_private.protocols.ring import reduce
from thinwire_private.protocols.sign import Wrap
from thinwire_private.protocols.triples import Stock, TripleMaker


@dataclass(frozen=True)
class Truncate(Operator):
    """TR(l, s): y = x >> s in the ring of l - s bits, exact: (x0 >> s) + (x1 >> s) + wrap of the low s bits.

    1. wrap by Mill(s); 2. B2A to l - s bits. Cost: Mill(s) + c2 + (l - s).
    """

    count: int
    width: int
    shift: int
    kind: OtKind
    ahead: bool = False  # triples were made before

    @property
    def _wrap(self) -> Wrap:
        return Wrap(self.count, self.shift, self.kind, self.ahead)

    @property
    def maker(self) -> TripleMaker:
        """Makes those triples."""
        return self._wrap.maker if self.shift else TripleMaker(0, 0, self.kind)

    @property
    def _b2a(self) -> B2A:
        return B2A(self.count, self.width - self.shift, self.kind)

    def messages(self) -> Messages:
        return self._wrap.messages() + self._b2a.messages() if self.shift else ()

    def run(self, party: Party, x: Words, stock: Stock | None = None) -> Words:
        """Shares of floor(x / 2^s) mod 2^(l - s)."""
        if not self.shift:
            return x
        carry = self._b2a.run(party, self._wrap.run(party, x, stock))
        return reduce((reduce(x, self.width) >> np.uint64(self.shift)) + carry, self.width - self.shift)


@dataclass(frozen=True)
class Ars(Operator):
    """Arithmetic right shift that keeps l bits: 1. TR(l, s); 2. signed extension back to l bits.

    Cost: Mill(s) + Mill(l - s) + 2 c2 + l.
    """

    count: int
    width: int
    shift: int
    kind: OtKind

    @property
    def _truncate(self) -> Truncate:
        return Truncate(self.count, self.width, self.shift, self.kind)

    @property
    def _extend(self) -> Extend:
        return Extend(self.count, self.width - self.shift, self.width, self.kind, signed=True)

    def messages(self) -> Messages:
        return self._truncate.messages() + self._extend.messages()

    def run(self, party: Party, x: Words) -> Words:
        """Shares of floor(x / 2^s), x signed, mod 2^l."""
        return self._extend.run(party, self._truncate.run(party, x))

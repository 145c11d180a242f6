"""Extend, Truncate and Ars: shares of x move to a wider ring, or are shifted to the right."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import CLIENT
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.b2a import B2A
from thinwire_private.protocols.cot import Cot
from thinwire_private.protocols.operator import Messages, Operator, Party, reduce, top_bit
from thinwire_private.protocols.sign import Wrap, WrapMsbKnown
from thinwire_private.protocols.triples import Stock, TripleMaker

UNKNOWN, SIRNN, ONE_COT = "none", "sirnn", "one_cot"


@dataclass(frozen=True)
class Extend(Operator):
    """Ext(m -> n). What is known of the top bit of x decides the form:

    none: 1. wrap by Mill(m); 2. B2A to n - m bits. Signed: add 2^(m-1) before, subtract it after.
        Cost Mill(m) + c2 + (n - m).
    sirnn: top bit 0. 1. wrap by one 1-of-4 lookup; 2. B2A. Cost 260 + c2 + (n - m) with KK13.
    one_cot: top bit 0. wrap = t0 or t1 = t0 + t1 - t0 t1: one COT with D = t1, c = t0. Cost c2 + (n - m).
    """

    count: int
    narrow: int
    wide: int
    kind: OtKind
    form: str = UNKNOWN
    signed: bool = False

    @property
    def _more(self) -> int:
        return self.wide - self.narrow

    @property
    def _wrap(self) -> Wrap | WrapMsbKnown:
        return (Wrap if self.form == UNKNOWN else WrapMsbKnown)(self.count, self.narrow, self.kind)

    @property
    def _b2a(self) -> B2A:
        return B2A(self.count, self._more, self.kind)

    @property
    def _cot(self) -> Cot:
        return Cot(self.count, self._more, CLIENT, self.kind)

    def messages(self) -> Messages:
        if self._more <= 0:
            return ()
        if self.form == ONE_COT:
            return self._cot.messages()
        return self._wrap.messages() + self._b2a.messages()

    def run(self, party: Party, x: Words) -> Words:
        """Shares of the same x mod 2^n."""
        if self._more <= 0:
            return reduce(x, self.wide)
        half = np.uint64(1 << (self.narrow - 1)) if self.signed and party.is_server else np.uint64(0)
        x = reduce(x + half, self.narrow)
        if self.form == ONE_COT:
            wrap = self._or(party, x)
        else:
            wrap = self._b2a.run(party, self._wrap.run(party, x))
        return reduce(x - (wrap << np.uint64(self.narrow)) - half, self.wide)

    def _or(self, party: Party, x: Words) -> Words:
        top = top_bit(x, self.narrow)
        if party.is_server:
            return top.astype(np.uint64) - self._cot.receive(party, top)
        own = top.astype(np.uint64)
        return own + self._cot.send(party, own)


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

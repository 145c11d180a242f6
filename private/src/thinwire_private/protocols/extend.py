"""Extend: shares of x move from a ring of m bits to one of n bits: x = x0 + x1 - 2^m wrap."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import CLIENT
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.prg import Words
from thinwire_private.protocols.b2a import B2A
from thinwire_private.protocols.cot import Cot
from thinwire_private.protocols.operator import Messages, Operator
from thinwire_private.protocols.party import Party
from thinwire_private.protocols.ring import reduce, top_bit
from thinwire_private.protocols.sign import Wrap, WrapMsbKnown

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

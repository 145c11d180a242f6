"""B2A and Mux: shared bits become numbers, and select numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import SERVER
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, Words
from thinwire_private.protocols.cot import Cot, CotPair
from thinwire_private.protocols.operator import Messages, Operator, Party, keep_if, negate_if, reduce


@dataclass(frozen=True)
class B2A(Operator):
    """A shared bit as a number mod 2^l: b = b0 + b1 - 2 b0 b1; the product is a COT with D = -2 b0, c = b1.

    Cost: c2 + l bits.
    """

    count: int
    width: int
    kind: OtKind

    @property
    def _cot(self) -> Cot:
        return Cot(self.count, self.width, SERVER, self.kind)

    def messages(self) -> Messages:
        return self._cot.messages()

    def run(self, party: Party, bits: Bytes) -> Words:
        """Shares of b mod 2^l."""
        own = bits.astype(np.uint64)
        if party.is_server:
            return reduce(own - self._cot.send(party, np.uint64(0) - own - own), self.width)
        return reduce(own + self._cot.receive(party, bits), self.width)


@dataclass(frozen=True)
class Mux(Operator):
    """MUX_l: b * x of a shared bit and a shared number: two COTs, D_i = x_i (1 - 2 b_i), choice b_{1-i}.

    b x_i = b_i x_i + b_{1-i} x_i (1 - 2 b_i). Cost: 2 (c2 + l) bits; `chosen`, as in SCI's ReLU: 2 (c2 + 2
    l).
    """

    count: int
    width: int
    kind: OtKind
    chosen: bool = False

    @property
    def _pair(self) -> CotPair:
        return CotPair(self.count, self.count, self.width, self.kind, self.chosen)

    def messages(self) -> Messages:
        return self._pair.messages()

    def run(self, party: Party, bits: Bytes, x: Words) -> Words:
        """Shares of b * x mod 2^l."""
        own, received = self._pair.run(party, bits, negate_if(x, bits, self.width))
        return reduce(keep_if(x, bits) - own + received, self.width)


@dataclass(frozen=True)
class Blend(Operator):
    """b x + c K: a number kept or not, plus a constant taken or not: MUX and B2A in the same two flights.

    The server sends the COTs of the MUX (D = x0 (1 - 2 b0)) and of the B2A (D = -2 c0 K), the client those of
    the other half of the MUX. Cost: 3 (c2 + l) bits.
    """

    count: int
    width: int
    constant: int
    kind: OtKind

    @property
    def _pair(self) -> CotPair:
        return CotPair(2 * self.count, self.count, self.width, self.kind)

    def messages(self) -> Messages:
        return self._pair.messages()

    def run(self, party: Party, bits: Bytes, x: Words, takes: Bytes) -> Words:
        """Shares of b x + c K mod 2^l."""
        own = negate_if(x, bits, self.width)
        constant = keep_if(np.full(self.count, self.constant, np.uint64), takes)
        if party.is_server:
            sent, received = self._pair.run(
                party, bits, np.concatenate([own, np.uint64(0) - constant - constant])
            )
            sent = sent[: self.count] + sent[self.count :]
        else:
            sent, received = self._pair.run(party, np.concatenate([bits, takes]), own)
            received = received[: self.count] + received[self.count :]
        return reduce(keep_if(x, bits) + constant - sent + received, self.width)

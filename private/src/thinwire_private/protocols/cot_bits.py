"""CotBits: products of shared bits by correlated OTs of one or two bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import crossing, crossing_rows
from thinwire_private.ot.batch import Batch
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.packing import pack_small, packed_bytes, unpack_small
from thinwire_private.ot.prg import Bytes, Words
from thinwire_private.protocols.operator import Messages, Operator
from thinwire_private.protocols.party import Party


@dataclass
class Asked:
    """CotBits under way: the bits, the OTs this party chose in, and its share of those it answered."""

    e: Bytes
    y: Bytes
    chosen: Batch
    own: Bytes


@dataclass(frozen=True)
class CotBits(Operator):
    """e g for `single` + `double` shared bits e and, for the first `double` of them, e f.

    The cross terms e_0 g_1 and e_1 g_0 are two COTs of bits, one in each direction, in which e is the
    choice; so e g and e f share one. 1. Rows of the choices, crossing. 2. Corrections, crossing.

    Cost: 2 (c2 + 1) bits, 2 (c2 + 2) for a double one.
    """

    single: int
    double: int
    kind: OtKind

    def messages(self) -> Messages:
        count = self.single + self.double
        size = packed_bytes(count + self.double, 1)
        return crossing_rows(count, count, self.kind) + crossing((size, size))

    def run(self, party: Party, e: Bytes, g: Bytes, f: Bytes) -> Bytes:
        """Shares of e g, then of e[:double] f."""
        asked = self.ask(party, e, g, f)
        self.answer(party, asked)
        return self.finish(party, asked)

    def ask(self, party: Party, e: Bytes, g: Bytes, f: Bytes) -> Asked:
        """Send the rows."""
        return Asked(e, np.concatenate([g, f]), party.choose(e), e[:0])

    def answer(self, party: Party, asked: Asked) -> None:
        """Receive the peer's rows, send the corrections."""
        zero, one = party.sender_pads(party.offer(asked.e.size))
        asked.own = self._planes(zero)
        party.channel.send(pack_small(asked.own ^ self._planes(one) ^ asked.y, 1))

    def finish(self, party: Party, asked: Asked) -> Bytes:
        """Receive the peer's corrections."""
        e, y = asked.e, asked.y
        pads = self._planes(party.receiver_pads(asked.chosen))
        z = unpack_small(party.channel.receive(packed_bytes(y.size, 1)), y.size, 1)
        choice = np.concatenate([e, e[: self.double]])
        product: Bytes = (choice & y) ^ asked.own ^ pads ^ (choice & z)
        return product

    def _planes(self, pads: Words) -> Bytes:
        """Bit 0 of every pad, then bit 1 of the first `double` ones."""
        low = (pads & np.uint64(1)).astype(np.uint8)
        high = ((pads[: self.double] >> np.uint64(1)) & np.uint64(1)).astype(np.uint8)
        return np.concatenate([low, high])

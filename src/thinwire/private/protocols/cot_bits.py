"""CotBits: products of shared bits by correlated OTs of one or two bits."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire.private.message import crossing
from thinwire.private.ot.kind import OtKind
from thinwire.private.ot.packing import pack_small, packed_bytes, unpack_small
from thinwire.private.ot.prg import Bytes, Words
from thinwire.private.protocols.operator import Messages, Operator
from thinwire.private.protocols.party import Party


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
        sizes = [self.kind.row_bytes(count), packed_bytes(count + self.double, 1)]
        return crossing(*((size, size) for size in sizes))

    def run(self, party: Party, e: Bytes, g: Bytes, f: Bytes) -> Bytes:
        """Shares of e g, then of e[:double] f."""
        chosen = party.choose(e)
        zero, one = party.sender_pads(party.offer(e.size))
        own = self._planes(zero)
        y = np.concatenate([g, f])
        party.channel.send(pack_small(own ^ self._planes(one) ^ y, 1))
        pads = self._planes(party.receiver_pads(chosen))
        z = unpack_small(party.channel.receive(packed_bytes(y.size, 1)), y.size, 1)
        choice = np.concatenate([e, e[: self.double]])
        product: Bytes = (choice & y) ^ own ^ pads ^ (choice & z)
        return product

    def _planes(self, pads: Words) -> Bytes:
        """Bit 0 of every pad, then bit 1 of the first `double` ones."""
        low = (pads & np.uint64(1)).astype(np.uint8)
        high = ((pads[: self.double] >> np.uint64(1)) & np.uint64(1)).astype(np.uint8)
        return np.concatenate([low, high])

"""Correlated OT: the sender gets r, the receiver r + c * D; of ring elements (Cot) and of bits (CotBits)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire_private.message import ProtocolMessage, crossing, crossing_rows, rows
from thinwire_private.ot.kind import OtBatch, OtKind
from thinwire_private.ot.primitives import Bytes, Words, pack, pack_small, packed_bytes, unpack, unpack_small
from thinwire_private.protocols.operator import Messages, Operator, Party, keep_if, reduce


@dataclass(frozen=True)
class Cot(Operator):
    """COT_l. The sender inputs D in Z_{2^l}, the receiver a bit c.

    1. The receiver sends the rows of its choices (c2 bits each).
    2. The sender's share is r = pad_0; it sends z = r + D - pad_1 (l bits).
    3. The receiver takes pad_0 = r, or z + pad_1 = r + D.

    Cost per element: c2 + l bits.
    """

    count: int
    width: int
    sender: int
    kind: OtKind

    def messages(self) -> Messages:
        return (
            rows(1 - self.sender, self.count, self.kind),
            ProtocolMessage(self.sender, packed_bytes(self.count, self.width)),
        )

    def send(self, party: Party, correlation: Words) -> Words:
        """The sender's part: r."""
        zero, one = party.sender_pads(party.offer(self.count))
        party.send_ring(zero + correlation - one, self.width)
        return reduce(zero, self.width)

    def receive(self, party: Party, choices: Bytes) -> Words:
        """The receiver's part: r + c * D."""
        pads = party.receiver_pads(party.choose(choices))
        z = party.receive_ring(self.count, self.width)
        return reduce(pads + keep_if(z, choices), self.width)


@dataclass(frozen=True)
class CotPair(Operator):
    """COTs in both directions at once; their messages cross: rows of the choices, then corrections.

    `chosen` sends both messages of each OT instead of one correction, as SCI's ReLU does.
    Cost per element of a direction: c2 + l bits; chosen: c2 + 2 l.
    """

    server_sends: int
    client_sends: int
    width: int
    kind: OtKind
    chosen: bool = False

    def messages(self) -> Messages:
        counts = self.server_sends, self.client_sends
        reply_server, reply_client = (self._reply_bytes(count) for count in counts)
        return crossing_rows(*counts, self.kind) + crossing((reply_client, reply_server))

    def run(self, party: Party, choices: Bytes, correlation: Words) -> tuple[Words, Words]:
        """(r of the COTs in which this party sends, what it receives in the others)."""
        chosen = party.choose(choices)
        offered = party.offer(correlation.size)
        own, theirs = (self._run_chosen if self.chosen else self._run_cot)(
            party, offered, chosen, choices, correlation
        )
        return reduce(own, self.width), reduce(theirs, self.width)

    def _reply_bytes(self, count: int) -> int:
        return packed_bytes(count, self.width) * (1 + self.chosen)

    def _run_cot(
        self, party: Party, offered: OtBatch, chosen: OtBatch, choices: Bytes, correlation: Words
    ) -> tuple[Words, Words]:
        zero, one = party.sender_pads(offered)
        party.send_ring(zero + correlation - one, self.width)
        pads = party.receiver_pads(chosen)
        z = party.receive_ring(choices.size, self.width)
        return zero, pads + keep_if(z, choices)

    def _run_chosen(
        self, party: Party, offered: OtBatch, chosen: OtBatch, choices: Bytes, correlation: Words
    ) -> tuple[Words, Words]:
        share = party.prg.ring(correlation.size, self.width)
        zero, one = party.sender_pads(offered)
        both = [bytes(pack(zero + share, self.width)), bytes(pack(one + share + correlation, self.width))]
        party.channel.send(b"".join(both))
        pads = party.receiver_pads(chosen)
        size = packed_bytes(choices.size, self.width)
        wire = party.channel.receive(2 * size)
        first, second = (unpack(wire[i * size : (i + 1) * size], choices.size, self.width) for i in (0, 1))
        return share, keep_if(first, 1 - choices) + keep_if(second, choices) - pads


@dataclass
class PendingBits:
    """CotBits under way: the bits, the OTs this party chose in, and its share of those it answered."""

    e: Bytes
    y: Bytes
    chosen: OtBatch
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

    def ask(self, party: Party, e: Bytes, g: Bytes, f: Bytes) -> PendingBits:
        """Send the rows."""
        return PendingBits(e, np.concatenate([g, f]), party.choose(e), e[:0])

    def answer(self, party: Party, asked: PendingBits) -> None:
        """Receive the peer's rows, send the corrections."""
        zero, one = party.sender_pads(party.offer(asked.e.size))
        asked.own = self._planes(zero)
        party.channel.send(pack_small(asked.own ^ self._planes(one) ^ asked.y, 1))

    def finish(self, party: Party, asked: PendingBits) -> Bytes:
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

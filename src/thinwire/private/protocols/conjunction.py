"""Conjunction: e * g and, for some, e * f of shared bits: what joins two digits of a comparison."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from thinwire.private.message import CLIENT, SERVER, Message
from thinwire.private.ot.kind import OtKind
from thinwire.private.ot.packing import pack_small, packed_bytes, unpack_small
from thinwire.private.ot.prg import Bytes
from thinwire.private.protocols.operator import Messages, Operator
from thinwire.private.protocols.party import Party


@dataclass(frozen=True)
class Triples:
    """Shares of random a, b and c = a b, one bit per byte."""

    a: Bytes
    b: Bytes
    c: Bytes

    def part(self, start: int, stop: int) -> Triples:
        """Triples start..stop; each may be used once."""
        return Triples(self.a[start:stop], self.b[start:stop], self.c[start:stop])


@dataclass(frozen=True)
class Conjunction(Operator):
    """`single` + `double` shared bits e; for all e * g, for the first `double` also e * f.

    KK13: with bit triples. 1. Both open d = e xor a and g xor b. 2. z = c xor d b xor (g xor b) a (xor d
    (g xor b)).
    Cost per AND: 4 bits (and 144 for the triple, made before).

    Else: the cross terms e_0 g_1 and e_1 g_0 are two COTs of bits, in which e is the choice, so that e *
    g and
    e * f share one. Cost: 2 (c2 + 1) bits, 2 (c2 + 2) for a double one.
    """

    single: int
    double: int
    kind: OtKind

    @property
    def num_ands(self) -> int:
        """ANDs: a double one counts twice."""
        return self.single + 2 * self.double

    def messages(self) -> Messages:
        if self.kind.kk13:
            sizes = [packed_bytes(2 * self.num_ands, 1)]
        else:
            sizes = [self.kind.row_bytes(self.single + self.double), packed_bytes(self.num_ands, 1)]
        return tuple(Message(sender, size) for size in sizes for sender in (CLIENT, SERVER))

    def run(self, party: Party, e: Bytes, g: Bytes, f: Bytes, triples: Triples | None) -> tuple[Bytes, Bytes]:
        """Shares of (e * g, e[:double] * f)."""
        if triples is not None:
            product = self._with_triples(
                party, np.concatenate([e, e[: self.double]]), np.concatenate([g, f]), triples
            )
        else:
            product = self._with_cots(party, e, g, f)
        return product[: e.size], product[e.size :]

    def _with_triples(self, party: Party, x: Bytes, y: Bytes, triples: Triples) -> Bytes:
        own = np.concatenate([x ^ triples.a, y ^ triples.b])
        opened = own ^ unpack_small(party.channel.exchange(pack_small(own, 1)), own.size, 1)
        d, h = opened[: x.size], opened[x.size :]
        z = triples.c ^ (d & triples.b) ^ (h & triples.a)
        product: Bytes = z ^ (d & h) if party.is_server else z
        return product

    def _with_cots(self, party: Party, e: Bytes, g: Bytes, f: Bytes) -> Bytes:
        chosen = party.choose(e)
        zero, one = party.sender_pads(party.offer(e.size))
        own = _bit_planes(zero, self.double)
        y = np.concatenate([g, f])
        party.channel.send(pack_small(own ^ _bit_planes(one, self.double) ^ y, 1))
        pads = _bit_planes(party.receiver_pads(chosen), self.double)
        z = unpack_small(party.channel.receive(packed_bytes(y.size, 1)), y.size, 1)
        choice = np.concatenate([e, e[: self.double]])
        product: Bytes = (choice & y) ^ own ^ pads ^ (choice & z)
        return product


def _bit_planes(pads: np.ndarray[tuple[int, ...], np.dtype[np.uint64]], double: int) -> Bytes:
    """Bit 0 of every pad, then bit 1 of the first `double` ones."""
    low = (pads & np.uint64(1)).astype(np.uint8)
    high = ((pads[:double] >> np.uint64(1)) & np.uint64(1)).astype(np.uint8)
    return np.concatenate([low, high])

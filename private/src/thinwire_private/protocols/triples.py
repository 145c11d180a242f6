"""Triples: shares of random bits a, b and c = a b, made ahead of their use; Conjunction: ANDs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from thinwire_private.message import SERVER, crossing
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, pack_small, packed_bytes, unpack_small
from thinwire_private.protocols.cot import CotBits
from thinwire_private.protocols.lookup import Column, Lookup
from thinwire_private.protocols.operator import Messages, Operator, Party


@dataclass(frozen=True)
class Triples:
    """One bit per byte, for `single` + `double` products e g and then `double` products e f.

    `paired`: the last `double` triples have the a of the first ones, so e is opened once for g and f.
    """

    a: Bytes
    b: Bytes
    c: Bytes
    paired: bool


class Stock:
    """Triples that are handed out once each."""

    def __init__(self, singles: tuple[Bytes, ...], doubles: tuple[Bytes, ...] | None = None) -> None:
        """singles: (a, b, c); doubles: (a, b, c, b', c') with c' = a b', or None: singles serve for both."""
        self._singles, self._doubles = singles, doubles
        self._used_singles = self._used_doubles = 0

    def take(self, single: int, double: int) -> Triples:
        """Triples for one Conjunction."""
        if self._doubles is None:
            a, b, c = self._next_singles(single + 2 * double)
            return Triples(a, b, c, paired=False)
        start = self._used_doubles
        self._used_doubles += double
        assert self._used_doubles <= self._doubles[0].size, "a stock of triples is used up: a bug of thinwire"
        pair = [array[start : start + double] for array in self._doubles]
        a, b, c = self._next_singles(single)
        return Triples(
            np.concatenate([pair[0], a, pair[0]]),
            np.concatenate([pair[1], b, pair[3]]),
            np.concatenate([pair[2], c, pair[4]]),
            paired=True,
        )

    def _next_singles(self, count: int) -> list[Bytes]:
        start = self._used_singles
        self._used_singles += count
        assert self._used_singles <= self._singles[0].size, "a stock of triples is used up: a bug of thinwire"
        return [array[start : start + count] for array in self._singles]


@dataclass(frozen=True)
class TripleMaker(Operator):
    """Triples for `single` products e g and `double` pairs of products (e g, e f).

    KK13: two triples per 1-of-16 OT: 144 bits each. Entry (a, b, a', b') of the server's table holds
    c xor (a0 xor a)(b0 xor b), twice.
    Else: the products of random bits by COTs (CotBits): 2 (c2 + 1) bits, 2 (c2 + 2) for a pair.
    """

    single: int
    double: int
    kind: OtKind

    @property
    def column(self) -> Column:
        """KK13's tables."""
        return Column(-(-(self.single + 2 * self.double) // 2), 4, 2)

    @property
    def lookup(self) -> Lookup:
        """KK13's."""
        return Lookup((self.column,), SERVER, self.kind)

    @property
    def cots(self) -> CotBits:
        """The products, without KK13."""
        return CotBits(self.single, self.double, self.kind)

    def messages(self) -> Messages:
        if not self.single + self.double:
            return ()
        return self.lookup.messages() if self.kind.kk13 else self.cots.messages()

    @property
    def num_ots(self) -> int:
        """1-of-2 OTs in each direction."""
        return 0 if self.kind.kk13 else self.single + self.double

    def run(self, party: Party) -> Stock:
        """This party's shares."""
        if not self.single + self.double:
            empty = np.empty(0, np.uint8)
            return Stock((empty,) * 3, None if self.kind.kk13 else (empty,) * 5)
        making = self.ask(party)
        making.answer()
        return making.finish()

    def ask(self, party: Party) -> PendingTriples:
        """Send the rows of the choices and wait for nothing."""
        return _ByTables(self, party) if self.kind.kk13 else _ByCots(self, party)

    def offer(self, party: Party) -> tuple[Stock, Bytes]:
        """KK13: the server's shares and its tables."""
        pairs = self.column.count
        a, b, c = (party.prg.bits(2 * pairs).reshape(pairs, 2) for _ in range(3))
        entry = np.arange(16, dtype=np.uint8)
        table = np.zeros((pairs, 16), np.uint8)
        for half in (0, 1):
            theirs_a, theirs_b = entry >> np.uint8(2 * half) & 1, entry >> np.uint8(2 * half + 1) & 1
            product = (a[:, half, None] ^ theirs_a) & (b[:, half, None] ^ theirs_b)
            table |= (product ^ c[:, half, None]) << np.uint8(half)
        return Stock((a.reshape(-1), b.reshape(-1), c.reshape(-1))), table

    def choices(self, party: Party) -> Bytes:
        """KK13: the client's random bits (a, b, a', b') of each table."""
        return party.prg.take(self.column.count) & np.uint8(15)

    def chosen(self, choices: Bytes, found: Bytes) -> Stock:
        """KK13: the client's shares."""
        places = [(choices >> np.uint8(place)) & np.uint8(1) for place in range(4)]
        a, b = np.stack(places[0::2], 1).reshape(-1), np.stack(places[1::2], 1).reshape(-1)
        c = np.stack([found & np.uint8(1), found >> np.uint8(1)], 1).reshape(-1)
        return Stock((a, b, c))


class PendingTriples(ABC):
    """Triples under way, asked for when this is made; `answer`, then `finish`, each once."""

    @abstractmethod
    def answer(self) -> None:
        """Answer what the peer asked."""

    @abstractmethod
    def finish(self) -> Stock:
        """This party's shares, from the peer's answer."""


class _ByCots(PendingTriples):
    def __init__(self, maker: TripleMaker, party: Party) -> None:
        total = maker.single + maker.double
        self._maker, self._party = maker, party
        self._a, self._b = party.prg.bits(total), party.prg.bits(total)
        self._other = party.prg.bits(maker.double)
        self._asked = maker.cots.ask(party, self._a, self._b, self._other)

    def answer(self) -> None:
        self._maker.cots.answer(self._party, self._asked)

    def finish(self) -> Stock:
        product = self._maker.cots.finish(self._party, self._asked)
        a, b, d = self._a, self._b, self._maker.double
        c, with_other = product[: a.size], product[a.size :]
        return Stock((a[d:], b[d:], c[d:]), (a[:d], b[:d], c[:d], self._other, with_other))


class _ByTables(PendingTriples):
    """The server makes its shares when it answers, the client when it opens the tables."""

    def __init__(self, maker: TripleMaker, party: Party) -> None:
        self._maker, self._party = maker, party
        self._stock: Stock | None = None
        if not party.is_server:
            self._choices = maker.choices(party)
            self._pads = maker.lookup.ask(party, [self._choices])

    def answer(self) -> None:
        if self._party.is_server:
            self._stock, table = self._maker.offer(self._party)
            self._maker.lookup.send(self._party, [table])

    def finish(self) -> Stock:
        if self._stock is not None:
            return self._stock
        return self._maker.chosen(
            self._choices, self._maker.lookup.open(self._party, [self._choices], self._pads)[0]
        )


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

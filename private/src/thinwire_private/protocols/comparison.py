"""Comparison: shared bits of [a > b], a with the server, b with the client: the millionaires' protocol.

A Forest is its public plan: how numbers are cut into digits and how digits are joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from thinwire_private.message import SERVER
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, Words
from thinwire_private.protocols.lookup import Column, Lookup
from thinwire_private.protocols.operator import Messages, Operator, Party, mask
from thinwire_private.protocols.triples import Conjunction, Stock, TripleMaker

DIGIT_BITS = 4
Nodes = list[list[Bytes]]


@dataclass(frozen=True)
class Join:
    """Two nodes of tree `tree` become one: gt = gt_hi xor eq_hi gt_lo and, if asked, eq = eq_hi eq_lo."""

    tree: int
    low: int
    with_eq: bool


@dataclass(frozen=True)
class Tree:
    """A comparison of numbers of `bits` bits; `with_eq` asks for equality too."""

    bits: int
    with_eq: bool = False

    @property
    def digits(self) -> tuple[int, ...]:
        """Widths of the digits, lowest first."""
        whole, rest = divmod(self.bits, DIGIT_BITS)
        return (DIGIT_BITS,) * whole + ((rest,) if rest else ())

    def columns(self, count: int, kind: OtKind) -> list[Column]:
        """The lookup of each digit: 2 bits (gt, eq), 1 bit where equality is of no use.

        SCI's KK13 always takes 1-of-16 and 2 bits once there are two digits.
        """
        if kind.kk13 and len(self.digits) > 1:
            return [Column(count, DIGIT_BITS, 2) for _ in self.digits]
        useless = 0 if self.with_eq else 1  # the lowest digit's equality
        return [Column(count, width, 1 if place < useless else 2) for place, width in enumerate(self.digits)]


@dataclass(frozen=True)
class Forest:
    """Trees that are reduced side by side, level by level; then whole trees are joined, stage by stage.

    A stage holds pairs (high, low): tree `high` becomes the comparison of its bits above those of tree `low`.
    Low trees keep their own result, so that comparisons with equal low bits pay for them once.
    The last `twins` trees compare the same number of the client's with several of the server's: one lookup
    per digit answers them all.
    """

    trees: tuple[Tree, ...]
    stages: tuple[tuple[tuple[int, int], ...], ...] = ()
    twins: int = 1

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Trees that share their lookups."""
        alone = len(self.trees) - self.twins
        return (*((tree,) for tree in range(alone)), tuple(range(alone, len(self.trees))))

    def columns(self, count: int, kind: OtKind) -> list[Column]:
        """The lookups of all digits, group by group."""
        return [
            replace(column, bits=column.bits * len(group) if len(group) == 1 else 2 * len(group))
            for group in self.groups
            for column in self.trees[group[0]].columns(count, kind)
        ]

    @property
    def levels(self) -> tuple[tuple[Join, ...], ...]:
        """The joins of every level, those that also join equality first."""
        sizes = [len(tree.digits) for tree in self.trees]
        levels = []
        while max(sizes) > 1:
            joins = [
                Join(index, place, place > 0 or self.trees[index].with_eq)
                for index, size in enumerate(sizes)
                for place in range(0, size - 1, 2)
            ]
            levels.append(tuple(sorted(joins, key=lambda join: not join.with_eq)))
            sizes = [(size + 1) // 2 for size in sizes]
        return tuple(levels)


def stacked(*parts: int, tops: int) -> Forest:
    """`tops` comparisons whose bits differ in the highest part only: lower parts are compared once.

    parts: bits of the parts, lowest first; parts of 0 bits are left out. The last `tops` trees are the
    results; tree 0 is the comparison of the lowest part alone.

    >>> stacked(8, 9, tops=2).stages
    (((1, 0), (2, 0)),)
    """
    lower = [bits for bits in parts[:-1] if bits]
    trees = [Tree(bits, with_eq=place > 0) for place, bits in enumerate(lower)]
    highest = [Tree(parts[-1], with_eq=bool(lower))] * tops
    chain = tuple(((place, place - 1),) for place in range(1, len(lower)))
    last = (tuple((len(lower) + top, len(lower) - 1) for top in range(tops)),) if lower else ()
    return Forest((*trees, *highest), chain + last, tops)


@dataclass(frozen=True)
class Comparison(Operator):
    """Several comparisons over one batch of elements, joined as a Forest says.

    1. Every number is cut into digits of 4 bits. For each digit the client looks up (gt, eq) of the server's
       digit against its own, masked by the server's random shares. With KK13 the same lookup makes the bit
       triples, unless they were made ahead.
    2. Level by level, neighbours join: gt = gt_hi xor eq_hi gt_lo, eq = eq_hi eq_lo (Conjunction).
    3. Whole trees are joined the same way. A low tree's own result stays available: the wrap of low bits is a
       prefix of the comparison of all bits.
    """

    count: int
    forest: Forest
    kind: OtKind
    spare_ands: int = 0  # ANDs per element for which triples are left to the caller
    ahead: bool = False  # triples were made before, by `maker`

    @property
    def maker(self) -> TripleMaker:
        """Makes the triples of all joins."""
        joins = [join for level in self.forest.levels for join in level]
        double = sum(join.with_eq for join in joins)
        single = len(joins) - double + sum(map(len, self.forest.stages)) + self.spare_ands
        return TripleMaker(single * self.count, double * self.count, self.kind)

    @property
    def _makes_triples(self) -> bool:
        return self.kind.kk13 and not self.ahead and self.maker.column.count > 0

    @property
    def _lookup(self) -> Lookup:
        columns = self.forest.columns(self.count, self.kind)
        if self._makes_triples:
            columns.append(self.maker.column)
        return Lookup(tuple(columns), SERVER, self.kind)

    @property
    def _conjunctions(self) -> list[Conjunction]:
        counts = [
            (sum(not join.with_eq for join in level), sum(join.with_eq for join in level))
            for level in self.forest.levels
        ]
        counts += [(len(stage), 0) for stage in self.forest.stages]
        return [
            Conjunction(single * self.count, double * self.count, self.kind, self.ahead)
            for single, double in counts
        ]

    def messages(self) -> Messages:
        steps: list[Operator] = [self._lookup, *self._conjunctions]
        return tuple(message for step in steps for message in step.messages())

    def run(self, party: Party, numbers: Sequence[Words], stock: Stock | None = None) -> list[Bytes]:
        """Shares of [a > b] per tree (joined as the stages say); numbers: this party's, one per tree."""
        return self.run_with_spare(party, numbers, stock)[0]

    def run_with_spare(
        self, party: Party, numbers: Sequence[Words], stock: Stock | None = None
    ) -> tuple[list[Bytes], Stock | None]:
        """The same, and the triples that were not used; stock: those made ahead."""
        digits = [
            [
                ((number >> np.uint64(4 * place)) & mask(width)).astype(np.uint8)
                for place, width in enumerate(tree.digits)
            ]
            for tree, number in zip(self.forest.trees, numbers, strict=True)
        ]
        shares, made = self._offer(party, digits) if party.is_server else self._look_up(party, digits)
        stock = stock if made is None else made
        one = np.uint8(1)
        gt: Nodes = [[share & one for share in tree] for tree in shares]
        eq: Nodes = [[share >> one & one for share in tree] for tree in shares]
        conjunctions = self._conjunctions
        for level, step in zip(self.forest.levels, conjunctions, strict=False):
            gt, eq = self._join(party, level, step, gt, eq, stock)
        roots = [nodes[0] for nodes in gt]
        for stage, step in zip(self.forest.stages, conjunctions[len(self.forest.levels) :], strict=True):
            e = np.concatenate([eq[high][0] for high, _ in stage])
            g = np.concatenate([roots[low] for _, low in stage])
            joined, _ = step.run(party, e, g, g[:0], stock)
            for (high, _), product in zip(stage, joined.reshape(-1, self.count), strict=True):
                roots[high] = roots[high] ^ product
        return roots, stock

    def _offer(self, party: Party, digits: Nodes) -> tuple[Nodes, Stock | None]:
        """The server's tables: entry j of a digit holds (gt, eq) against j, for every tree of the group."""
        lookup, tables = self._lookup, []
        shares: Nodes = [[] for _ in digits]
        columns = iter(lookup.columns)
        for group in self.forest.groups:
            for place in range(len(digits[group[0]])):
                column = next(columns)
                entry = np.arange(1 << column.log, dtype=np.uint8)
                table = np.zeros((self.count, entry.size), np.uint8)
                for twin, tree in enumerate(group):
                    digit = digits[tree][place]
                    share = party.prg.bits(self.count) | party.prg.bits(self.count) << np.uint8(1)
                    gt, eq = digit[:, None] > entry, digit[:, None] == entry
                    answer = (gt | eq.astype(np.uint8) << np.uint8(1)) ^ share[:, None]
                    table |= answer << np.uint8(2 * twin)
                    shares[tree].append(share)
                tables.append(table)
        stock = None
        if self._makes_triples:
            stock, table = self.maker.offer(party)
            tables.append(table)
        lookup.send(party, tables)
        return shares, stock

    def _look_up(self, party: Party, digits: Nodes) -> tuple[Nodes, Stock | None]:
        choices = [digit for group in self.forest.groups for digit in digits[group[0]]]
        if self._makes_triples:
            choices.append(self.maker.choices(party))
        found = iter(self._lookup.receive(party, choices))
        shares: Nodes = [[] for _ in digits]
        for group in self.forest.groups:
            for _ in digits[group[0]]:
                answer = next(found)
                for twin, tree in enumerate(group):
                    shares[tree].append((answer >> np.uint8(2 * twin)) & np.uint8(3))
        stock = self.maker.chosen(choices[-1], next(found)) if self._makes_triples else None
        return shares, stock

    def _join(
        self,
        party: Party,
        level: tuple[Join, ...],
        step: Conjunction,
        gt: Nodes,
        eq: Nodes,
        stock: Stock | None,
    ) -> tuple[Nodes, Nodes]:
        e = np.concatenate([eq[join.tree][join.low + 1] for join in level])
        g = np.concatenate([gt[join.tree][join.low] for join in level])
        empty = np.empty(0, np.uint8)
        f = np.concatenate([empty, *(eq[join.tree][join.low] for join in level if join.with_eq)])
        with_g, with_f = step.run(party, e, g, f, stock)
        products, equals = with_g.reshape(-1, self.count), with_f.reshape(-1, self.count)
        next_gt: Nodes = [[empty] * (len(nodes) // 2) + nodes[len(nodes) // 2 * 2 :] for nodes in gt]
        next_eq: Nodes = [[empty] * (len(nodes) // 2) + nodes[len(nodes) // 2 * 2 :] for nodes in eq]
        for place, join in enumerate(level):
            next_gt[join.tree][join.low // 2] = gt[join.tree][join.low + 1] ^ products[place]
            if join.with_eq:
                next_eq[join.tree][join.low // 2] = equals[place]
        return next_gt, next_eq


def Mill(count: int, bits: int, kind: OtKind, ahead: bool = False) -> Comparison:
    """Mill(l): [a > b] of l-bit numbers.

    Cost: l <= 4: OT_{2^l}(1 bit). Else q = ceil(l / 4) lookups of 2 bits and t = 2q - 2 - ceil(log2 q) ANDs:
    288 q + 148 t bits with KK13.
    """
    return Comparison(count, Forest((Tree(bits),)), kind, ahead=ahead)

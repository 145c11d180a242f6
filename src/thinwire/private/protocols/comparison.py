"""Comparison: shared bits of [a > b], a with the server, b with the client: the millionaires' protocol."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from thinwire.private.message import SERVER
from thinwire.private.ot.kind import OtKind
from thinwire.private.ot.prg import Bytes, Words
from thinwire.private.protocols.conjunction import Conjunction, Triples
from thinwire.private.protocols.forest import Forest, Join, Tree
from thinwire.private.protocols.lookup import Column, Lookup
from thinwire.private.protocols.operator import Messages, Operator
from thinwire.private.protocols.party import Party
from thinwire.private.protocols.ring import mask

Nodes = list[list[Bytes]]


@dataclass(frozen=True)
class Comparison(Operator):
    """Several comparisons over one batch of elements, joined as a Forest says.

    1. Every number is cut into digits of 4 bits. For each digit the client looks up (gt, eq) of the server's
       digit against its own, masked by the server's random shares. With KK13 the same lookup makes bit
       triples:
       two per 1-of-16 OT.
    2. Level by level, neighbours join: gt = gt_hi xor eq_hi gt_lo, eq = eq_hi eq_lo (Conjunction).
    3. Whole trees are joined the same way. A low tree's own result stays available: the wrap of low bits is a
       prefix of the comparison of all bits.
    """

    count: int
    forest: Forest
    kind: OtKind
    spare_ands: int = 0  # triples per element that are left for the caller

    @property
    def _lookup(self) -> Lookup:
        columns = self.forest.columns(self.count, self.kind)
        num_triples = self.count * (self.forest.num_ands + self.spare_ands)
        if self.kind.kk13 and num_triples:
            columns.append(Column(-(-num_triples // 2), 4, 2))
        return Lookup(tuple(columns), SERVER, self.kind)

    @property
    def _conjunctions(self) -> list[Conjunction]:
        counts = [
            (sum(not join.with_eq for join in level), sum(join.with_eq for join in level))
            for level in self.forest.levels
        ]
        counts += [(len(stage), 0) for stage in self.forest.stages]
        return [Conjunction(single * self.count, double * self.count, self.kind) for single, double in counts]

    def messages(self) -> Messages:
        steps: list[Operator] = [self._lookup, *self._conjunctions]
        return tuple(message for step in steps for message in step.messages())

    def run(self, party: Party, numbers: Sequence[Words]) -> list[Bytes]:
        """Shares of [a > b] per tree (joined as the stages say); numbers: this party's, one per tree."""
        return self.run_with_spare(party, numbers)[0]

    def run_with_spare(self, party: Party, numbers: Sequence[Words]) -> tuple[list[Bytes], Triples | None]:
        """The same, and the triples that were not used."""
        digits = [
            [
                ((number >> np.uint64(4 * place)) & mask(width)).astype(np.uint8)
                for place, width in enumerate(tree.digits)
            ]
            for tree, number in zip(self.forest.trees, numbers, strict=True)
        ]
        shares, triples = self._offer(party, digits) if party.is_server else self._look_up(party, digits)
        one = np.uint8(1)
        gt: Nodes = [[share & one for share in tree] for tree in shares]
        eq: Nodes = [[share >> one & one for share in tree] for tree in shares]
        used = 0
        conjunctions = self._conjunctions
        for level, step in zip(self.forest.levels, conjunctions, strict=False):
            part = triples and triples.part(used, used + step.num_ands)
            gt, eq = self._join(party, level, step, gt, eq, part)
            used += step.num_ands
        roots = [nodes[0] for nodes in gt]
        for stage, step in zip(self.forest.stages, conjunctions[len(self.forest.levels) :], strict=True):
            part = triples and triples.part(used, used + step.num_ands)
            e = np.concatenate([eq[high][0] for high, _ in stage])
            g = np.concatenate([roots[low] for _, low in stage])
            joined, _ = step.run(party, e, g, g[:0], part)
            for (high, _), product in zip(stage, joined.reshape(-1, self.count), strict=True):
                roots[high] = roots[high] ^ product
            used += step.num_ands
        return roots, triples and triples.part(used, used + self.count * self.spare_ands)

    def _offer(self, party: Party, digits: Nodes) -> tuple[Nodes, Triples | None]:
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
        triples = None
        if (rest := next(columns, None)) is not None:
            triples, table = _triple_tables(party, rest.count)
            tables.append(table)
        lookup.send(party, tables)
        return shares, triples

    def _look_up(self, party: Party, digits: Nodes) -> tuple[Nodes, Triples | None]:
        lookup, triples = self._lookup, None
        choices = [digit for group in self.forest.groups for digit in digits[group[0]]]
        if len(lookup.columns) > len(choices):
            choices.append(party.prg.take(lookup.columns[-1].count) & np.uint8(15))
        found = iter(lookup.receive(party, choices))
        shares: Nodes = [[] for _ in digits]
        for group in self.forest.groups:
            for _ in digits[group[0]]:
                answer = next(found)
                for twin, tree in enumerate(group):
                    shares[tree].append((answer >> np.uint8(2 * twin)) & np.uint8(3))
        if (rest := next(found, None)) is not None:
            triples = _chosen_triples(choices[-1], rest)
        return shares, triples

    def _join(
        self,
        party: Party,
        level: tuple[Join, ...],
        step: Conjunction,
        gt: Nodes,
        eq: Nodes,
        triples: Triples | None,
    ) -> tuple[Nodes, Nodes]:
        e = np.concatenate([eq[join.tree][join.low + 1] for join in level])
        g = np.concatenate([gt[join.tree][join.low] for join in level])
        empty = np.empty(0, np.uint8)
        f = np.concatenate([empty, *(eq[join.tree][join.low] for join in level if join.with_eq)])
        with_g, with_f = step.run(party, e, g, f, triples)
        products, equals = with_g.reshape(-1, self.count), with_f.reshape(-1, self.count)
        next_gt: Nodes = [[empty] * (len(nodes) // 2) + nodes[len(nodes) // 2 * 2 :] for nodes in gt]
        next_eq: Nodes = [[empty] * (len(nodes) // 2) + nodes[len(nodes) // 2 * 2 :] for nodes in eq]
        for place, join in enumerate(level):
            next_gt[join.tree][join.low // 2] = gt[join.tree][join.low + 1] ^ products[place]
            if join.with_eq:
                next_eq[join.tree][join.low // 2] = equals[place]
        return next_gt, next_eq


def Mill(count: int, bits: int, kind: OtKind) -> Comparison:
    """Mill(l): [a > b] of l-bit numbers.

    Cost: l <= 4: OT_{2^l}(1 bit). Else q = ceil(l / 4) lookups of 2 bits and t = 2q - 2 - ceil(log2 q) ANDs:
    288 q + 148 t bits with KK13.
    """
    return Comparison(count, Forest((Tree(bits),)), kind)


def _triple_tables(party: Party, pairs: int) -> tuple[Triples, Bytes]:
    """The server's half of two triples per table: entry (a, b, a', b') holds c xor (a0 ^ a)(b0 ^ b),
    twice."""
    a, b, c = (party.prg.bits(2 * pairs).reshape(pairs, 2) for _ in range(3))
    entry = np.arange(16, dtype=np.uint8)
    table = np.zeros((pairs, 16), np.uint8)
    for half in (0, 1):
        theirs_a, theirs_b = entry >> np.uint8(2 * half) & 1, entry >> np.uint8(2 * half + 1) & 1
        product = (a[:, half, None] ^ theirs_a) & (b[:, half, None] ^ theirs_b)
        table |= (product ^ c[:, half, None]) << np.uint8(half)
    return Triples(a.reshape(-1), b.reshape(-1), c.reshape(-1)), table


def _chosen_triples(choices: Bytes, found: Bytes) -> Triples:
    places = [(choices >> np.uint8(place)) & 1 for place in range(4)]
    a, b = np.stack(places[0::2], 1).reshape(-1), np.stack(places[1::2], 1).reshape(-1)
    return Triples(a, b, np.stack([found & 1, found >> np.uint8(1)], 1).reshape(-1))

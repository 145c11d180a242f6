"""Requantize: an accumulator becomes an activation: shift, ReLU, clamp."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, Words
from thinwire_private.protocols.b2a import B2A, Blend, Mux
from thinwire_private.protocols.comparison import Comparison, stacked
from thinwire_private.protocols.extend import UNKNOWN, Extend, Truncate
from thinwire_private.protocols.operator import Messages, Operator, Party, mask, reduce, top_bit
from thinwire_private.protocols.sign import wrap_input
from thinwire_private.protocols.triples import Conjunction, Stock, TripleMaker


@dataclass(frozen=True)
class Requantize(Operator):
    """y = max(0, x >> s), clamped to 2^l_x - 1 if asked; x signed (relu) or unsigned with a top bit of 0.

    One after the other: 1. TR(l, s), n = l - s bits are left. 2. Comparison: p = [x >= 0] and, for the clamp,
    q = [x < 2^l_x], side by side. 3. u = p q by an AND. 4. y = MUX(u, x) + (2^l_x - 1) B2A(p xor u).
    Fused: the wrap of the low s bits is a prefix of the comparison of all l - 1 bits, so that step 1's
    comparison is free and its flights vanish: Mill(l - 1) in all.
    The MUX works in `out_width` bits only; `chosen` is SCI's: all n bits, chosen OT.

    p and q compare the same number of the client's, so one lookup per digit answers both.

    Cost: TR(l, s) + Mill(n - 1) + 2 (c2 + l_x + 1); the clamp adds 32 bits per digit,
    its ANDs and one more, and c2 + l_x + 1.
    """

    count: int
    width: int
    shift: int
    out_bits: int
    out_width: int
    kind: OtKind
    relu: bool = True
    clamp: bool = True
    fused: bool = False
    chosen: bool = False
    msb: str = UNKNOWN
    ahead: bool = False  # triples were made before

    @property
    def left(self) -> int:
        """n = l - s."""
        return self.width - self.shift

    @property
    def clamps(self) -> bool:
        """Whether a number above 2^l_x - 1 could come."""
        return self.clamp and self.left - 1 > self.out_bits

    @property
    def _fuses(self) -> bool:
        return self.fused and self.shift > 0 and self._num_signs > 0

    @property
    def _num_signs(self) -> int:
        return self.relu + self.clamps

    @property
    def _mux_width(self) -> int:
        return self.left if self.chosen else min(self.left, self.out_width)

    @cached_property
    def _truncate(self) -> Truncate:
        return Truncate(self.count, self.width, self.shift, self.kind, self.ahead)

    @cached_property
    def _comparison(self) -> Comparison:
        spare = int(self.relu and self.clamps)
        low = self.shift if self._fuses else 0
        # x and x - 2^l_x agree in their low l_x bits: as many of them are compared once as is cheapest.
        splits = {0, self.out_bits // 4 * 4, self.out_bits} if spare else {0}
        forests = [
            stacked(low, split, self.left - 1 - split, tops=self._num_signs) for split in sorted(splits)
        ]
        options = [Comparison(self.count, forest, self.kind, spare, self.ahead) for forest in forests]
        return min(options, key=_all_bytes)

    @property
    def _and(self) -> Conjunction:
        return Conjunction(self.count, 0, self.kind, self.ahead)

    @property
    def _carry(self) -> B2A:
        return B2A(self.count, self._mux_width, self.kind)

    @property
    def _mux(self) -> Mux:
        return Mux(self.count, self._mux_width, self.kind, self.chosen)

    @property
    def _top(self) -> B2A:
        return B2A(self.count, self.out_width, self.kind)

    @property
    def _blend(self) -> Blend:
        return Blend(self.count, self.out_width, (1 << self.out_bits) - 1, self.kind)

    @property
    def _blends(self) -> bool:
        """MUX and the clamp's B2A at once; they need one ring."""
        return self.clamps and not self.chosen

    @property
    def maker(self) -> TripleMaker:
        """Makes all triples of this operator ahead."""
        makers = [] if self._fuses else [self._truncate.maker]
        makers += [self._comparison.maker] if self._num_signs and not self._is_zero else []
        return TripleMaker(sum(m.single for m in makers), sum(m.double for m in makers), self.kind)

    @property
    def _extend(self) -> Extend:
        return Extend(self.count, min(self._mux_width, self.out_width), self.out_width, self.kind, self.msb)

    @property
    def _is_zero(self) -> bool:
        """Only the sign is left, and the ReLU takes it."""
        return self.relu and self.left <= 1

    def messages(self) -> Messages:
        if self._is_zero:
            return ()
        steps: list[Operator] = []
        if not self._fuses:
            steps.append(self._truncate)
        if self._num_signs:
            steps.append(self._comparison)
            steps += [self._and] if self.relu and self.clamps else []
            steps += [self._carry] if self._fuses else []
            if self._blends:
                steps.append(self._blend)
            else:
                steps += [self._mux, self._top] if self.clamps else [self._mux]
        steps.append(self._extend)
        return tuple(message for step in steps for message in step.messages())

    def run(self, party: Party, x: Words, stock: Stock | None = None) -> Words:
        """Shares of y mod 2^out_width; stock: triples made ahead."""
        if self._is_zero:
            return np.zeros_like(x)
        x = reduce(x, self.width)
        if self._num_signs == 0:
            return self._extend.run(party, reduce(self._truncate.run(party, x, stock), self.out_width))
        if self._fuses:
            carry, signs, stock = self._compare_fused(party, x, stock)
            keep, top = self._select(party, signs, stock)
            y = (x >> np.uint64(self.shift)) + self._carry.run(party, carry)
        else:
            y = self._truncate.run(party, x, stock)
            signs, stock = self._compare(party, y, stock)
            keep, top = self._select(party, signs, stock)
        y = reduce(y, self._mux_width)
        if self._blends:
            y = self._blend.run(party, keep, y, top)
        else:
            y = self._mux.run(party, keep, y)
            if self.clamps:
                y = y + self._top.run(party, top) * mask(self.out_bits)
        return self._extend.run(party, reduce(y, self.out_width))

    def _shifted(self, party: Party, x: Words, shift: int) -> list[Words]:
        """The numbers whose top bits are asked for: x for the ReLU, x - 2^l_x for the clamp (at scale
        2^shift)."""
        limit = np.uint64(1 << (self.out_bits + shift)) if party.is_server else np.uint64(0)
        return ([x] if self.relu else []) + ([x - limit] if self.clamps else [])

    def _compare(self, party: Party, x: Words, stock: Stock | None) -> tuple[list[Bytes], Stock | None]:
        numbers = self._shifted(party, x, 0)
        _, wraps, stock = self._wraps(party, numbers, self.left - 1, stock)
        return [top_bit(n, self.left) ^ wrap for n, wrap in zip(numbers, wraps, strict=True)], stock

    def _compare_fused(
        self, party: Party, x: Words, stock: Stock | None
    ) -> tuple[Bytes, list[Bytes], Stock | None]:
        numbers = self._shifted(party, x, self.shift)
        carry, wraps, stock = self._wraps(party, numbers, self.width - 1, stock)
        signs = [top_bit(n, self.width) ^ wrap for n, wrap in zip(numbers, wraps, strict=True)]
        return carry, signs, stock

    def _wraps(
        self, party: Party, numbers: list[Words], width: int, stock: Stock | None
    ) -> tuple[Bytes, list[Bytes], Stock | None]:
        """(wrap of the lowest part, wraps of the numbers' low `width` bits, spare triples)."""
        inputs = [wrap_input(party, number, width) for number in numbers]
        trees = self._comparison.forest.trees
        lower = trees[: len(trees) - len(numbers)]
        parts, start = [], 0
        for tree in lower:
            parts.append(reduce(inputs[0] >> np.uint64(start), tree.bits))
            start += tree.bits
        highs = [number >> np.uint64(start) for number in inputs]
        roots, stock = self._comparison.run_with_spare(party, parts + highs, stock)
        return roots[0], roots[len(lower) :], stock

    def _select(self, party: Party, signs: list[Bytes], stock: Stock | None) -> tuple[Bytes, Bytes]:
        """(bit that keeps x, bit that takes the largest value instead)."""
        one = np.uint8(party.is_server)
        if not self.relu:
            return signs[0], signs[0] ^ one
        positive = signs[0] ^ one
        if not self.clamps:
            return positive, positive
        keep, _ = self._and.run(party, positive, signs[1], signs[1][:0], stock)
        return keep, positive ^ keep


def _all_bytes(comparison: Comparison) -> int:
    """What a comparison costs with its triples, whenever they are made."""
    made = comparison.maker.predict_bytes() if comparison.ahead else 0
    return comparison.predict_bytes() + made

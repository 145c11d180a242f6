"""Matrix products W X, W plaintext with the server, X shared; forms differ in whose bits choose.

WeightBits and ActivationBits are ours; Sirnn and SirnnSwapped are SiRNN's, for comparison.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from thinwire_private.message import CLIENT, SERVER
from thinwire_private.net.nodes import IntArray
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Words, native
from thinwire_private.protocols.extend import UNKNOWN, Extend
from thinwire_private.protocols.operator import Messages, Operator, Party, encode, reduce, top_bit
from thinwire_private.protocols.product import BitProduct, Seeds, WrapProduct
from thinwire_private.protocols.sign import Wrap, WrapMsbKnown


@dataclass(frozen=True)
class Shape:
    """W (d1 x d2) with l_w signed bits times X (d2 x d3)."""

    d1: int
    d2: int
    d3: int
    weight_bits: int

    @property
    def sum_bits(self) -> int:
        """e = ceil(log2 d2)."""
        return ceil(log2(self.d2))


def ring_matmul(weight: IntArray, x: Words, width: int) -> Words:
    """W x mod 2^width. Not by BLAS: its idle threads spin, and the peer may need their cores.

    >>> ring_matmul(np.array([[3, -1]]), np.array([[5], [2]], np.uint64), 4)
    array([[13]], dtype=uint64)
    """
    word = np.uint32 if width <= 32 else np.uint64
    factors = np.ascontiguousarray(weight.astype(np.int64).astype(word))
    total = np.zeros((weight.shape[0], x.shape[1]), word)
    matrix = np.ascontiguousarray(x.astype(word))
    native().multiply(factors.reshape(-1), matrix.reshape(-1), weight.shape[1], total.reshape(-1))
    return reduce(total.astype(np.uint64), width)


@dataclass(frozen=True)
class WeightBits(Operator):
    """The weight's bits choose; X was extended to L bits before im2col, so there are no wraps (PrivQuant).

    1. The server computes W x0.  2. W x1: BitProduct, the server receives.  3. Both add.
    The client's x1 may be any mask drawn before: the product is then made offline. Its seeds depend on W
    only: they are made once per client.

    Cost: d1 d2 (l_w c2 + d3 sum_{i < l_w} (L - i)) bits.
    """

    shape: Shape
    width: int
    kind: OtKind

    @property
    def product(self) -> BitProduct:
        """The COTs."""
        s = self.shape
        return BitProduct(s.d1, s.d2, s.d3, s.weight_bits, self.width, True, SERVER, self.kind)

    def messages(self) -> Messages:
        return self.product.messages()

    def seeds(self, party: Party, weight: IntArray | None) -> Seeds:
        """The OTs of the weights; may be kept for the whole session."""
        if weight is None:
            return self.product.offer(party)
        return self.product.choose(party, encode(weight, self.shape.weight_bits))

    def cross(self, party: Party, seeds: Seeds, x: Words | None) -> Words:
        """Shares (d1, d3) of W times the client's matrix x."""
        if x is None:
            return self.product.receive(party, seeds)
        return self.product.send(party, seeds, x)

    def run(self, party: Party, weight: IntArray | None, x: Words) -> Words:
        """Shares (d1, d3) of W x mod 2^L; x: this party's share (d2, d3) mod 2^L."""
        seeds = self.seeds(party, weight)
        if weight is None:
            return self.cross(party, seeds, x)
        return reduce(self.cross(party, seeds, None) + ring_matmul(weight, x, self.width), self.width)


@dataclass(frozen=True)
class ActivationBits(Operator):
    """The client's activation bits choose; x lives in m bits, its top bit is 0; there is no extension.

    With t_i the top bit of x_i: x = (x0 - 2^m t0) + (x1 without its top bit) + t1 2^(m-1) (2 t0 - 1), so the
    wrap costs nothing: the top bit's correlation gets the sign 2 t0 - 1, which the server knows.

    Cost: d2 d3 (m c2 + d1 sum_{i < m} (L - i)) bits; best for fully connected layers.
    """

    shape: Shape
    in_width: int
    width: int
    kind: OtKind
    is_plain: bool = False  # x is the client's alone

    @property
    def product(self) -> BitProduct:
        """The COTs, with W transposed as the sender's matrix."""
        s = self.shape
        return BitProduct(
            s.d3, s.d2, s.d1, self.in_width, self.width, False, CLIENT, self.kind, not self.is_plain
        )

    def messages(self) -> Messages:
        return self.product.messages()

    def run(self, party: Party, weight: IntArray | None, x: Words) -> Words:
        """Shares (d1, d3) of W x mod 2^L; x: this party's share (d2, d3) mod 2^m."""
        if weight is None:
            seeds = self.product.choose(party, np.ascontiguousarray(x.T))
            return self.product.receive(party, seeds).T
        top = np.ascontiguousarray(top_bit(x, self.in_width).T)
        seeds = self.product.offer(party)
        cross = self.product.send(party, seeds, encode(weight.T, self.width).reshape(weight.T.shape), top)
        own = x - (top_bit(x, self.in_width).astype(np.uint64) << np.uint64(self.in_width))
        return reduce(cross.T + ring_matmul(weight, reduce(own, self.width), self.width), self.width)


@dataclass(frozen=True)
class Sirnn(Operator):
    """SiRNN's product as SCI ships it: the client's activation bits choose, shares of X stay l_x bits.

    1. W x1: BitProduct, the client receives.
    2. The wrap of every entry of X, after im2col: Mill(l_x), or one 1-of-4 lookup where its top bit is known.
    3. 2^l_x W wrap: chosen OTs (WrapProduct).  4. The server adds W x0.
    L' = l_w + l_x + e. The truncation by e follows (products.py).

    Cost: d2 d3 (l_x c2 + d1 sum_{i < l_x} (L' - i) + (260 or Mill(l_x)) + c2 + 2 d1 (L' - l_x)) bits.
    """

    shape: Shape
    in_width: int
    width: int
    kind: OtKind
    msb: str = UNKNOWN
    is_plain: bool = False

    @property
    def product(self) -> BitProduct:
        """The COTs, with W transposed as the sender's matrix."""
        s = self.shape
        return BitProduct(s.d3, s.d2, s.d1, self.in_width, self.width, False, CLIENT, self.kind)

    @property
    def _wrap(self) -> Wrap | WrapMsbKnown:
        form = Wrap if self.msb == UNKNOWN else WrapMsbKnown
        return form(self.shape.d2 * self.shape.d3, self.in_width, self.kind)

    @property
    def _wraps(self) -> WrapProduct:
        s = self.shape
        return WrapProduct(s.d3, s.d2, s.d1, self.width - self.in_width, self.in_width, CLIENT, self.kind)

    def messages(self) -> Messages:
        if self.is_plain:
            return self.product.messages()
        return self.product.messages() + self._wrap.messages() + self._wraps.messages()

    def run(self, party: Party, weight: IntArray | None, x: Words) -> Words:
        """Shares (d1, d3) of W x mod 2^L'; x: this party's share (d2, d3) mod 2^l_x."""
        if weight is None:
            chosen = self.product.choose(party, np.ascontiguousarray(x.T))
            total = self.product.receive(party, chosen)
        else:
            total = self.product.send(party, self.product.offer(party), turned(weight, self.width))
            total = total + ring_matmul(weight, reduce(x, self.in_width), self.width).T
        if not self.is_plain:
            total = total + times_wraps(party, weight, x, self._wrap, self._wraps, self.width)
        return reduce(total.T, self.width)


@dataclass(frozen=True)
class SirnnSwapped(Operator):
    """SiRNN's product with the roles swapped: the weight's bits choose, X is extended by e bits after im2col.

    1. Ext(l_x -> l_x + e) of every entry.  2. W x1: BitProduct, the server receives.
    3. The wraps of the extended entries, whose top bit is 0: 1-of-4 lookups.
    4. 2^(l_x+e) W wrap: chosen OTs of l_w bits (WrapProduct).  5. The server adds W x0.

    Cost: d1 d2 (l_w c2 + d3 sum_{i < l_w} (L' - i)) + d2 d3 (Ext + 260 + c2 + 2 d1 l_w) bits.
    """

    shape: Shape
    in_width: int
    width: int
    kind: OtKind
    msb: str = UNKNOWN
    is_plain: bool = False

    @property
    def _wide(self) -> int:
        return self.in_width + self.shape.sum_bits

    @property
    def _extend(self) -> Extend:
        return Extend(self.shape.d2 * self.shape.d3, self.in_width, self._wide, self.kind, self.msb)

    @property
    def product(self) -> BitProduct:
        """The COTs."""
        s = self.shape
        return BitProduct(s.d1, s.d2, s.d3, s.weight_bits, self.width, True, SERVER, self.kind)

    @property
    def _wrap(self) -> WrapMsbKnown:
        # The e new bits of an extended entry are 0, so its top bit is known whatever that of x is.
        return WrapMsbKnown(self.shape.d2 * self.shape.d3, self._wide, self.kind)

    @property
    def _wraps(self) -> WrapProduct:
        s = self.shape
        return WrapProduct(s.d3, s.d2, s.d1, self.width - self._wide, self._wide, CLIENT, self.kind)

    def messages(self) -> Messages:
        if self.is_plain:
            return self.product.messages()
        steps: list[Operator] = [self._extend, self.product]
        if self.width > self._wide:
            steps += [self._wrap, self._wraps]
        return tuple(message for step in steps for message in step.messages())

    def run(self, party: Party, weight: IntArray | None, x: Words) -> Words:
        """Shares (d1, d3) of W x mod 2^L'; x: this party's share (d2, d3) mod 2^l_x."""
        if not self.is_plain:
            x = self._extend.run(party, np.ascontiguousarray(x).reshape(-1)).reshape(x.shape)
        if weight is None:
            total = self.product.send(party, self.product.offer(party), x)
        else:
            signed = encode(weight, self.shape.weight_bits)
            total = self.product.receive(party, self.product.choose(party, signed))
            total = total + ring_matmul(weight, x, self.width)
        if not self.is_plain and self.width > self._wide:
            total = total + times_wraps(party, weight, x, self._wrap, self._wraps, self.width).T
        return reduce(total, self.width)


def times_wraps(
    party: Party,
    weight: IntArray | None,
    x: Words,
    wrap: Wrap | WrapMsbKnown,
    product: WrapProduct,
    width: int,
) -> Words:
    """Shares (d3, d1) of 2^k W w, w the wraps of x: what both orientations add to their COTs."""
    entries = np.ascontiguousarray(x.T)
    wraps = wrap.run(party, entries.reshape(-1)).reshape(entries.shape)
    if weight is None:
        return product.receive(party, wraps)
    return product.send(party, wraps, turned(weight, width))


def turned(weight: IntArray, width: int) -> Words:
    """W transposed, mod 2^width."""
    return encode(weight.T, width).reshape(weight.T.shape)

"""Matrix products W X, W plaintext with the server, X shared; forms differ in whose bits choose."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log2

import numpy as np

from thinwire_private.message import CLIENT, SERVER
from thinwire_private.net.value import IntArray
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.native import native
from thinwire_private.ot.prg import Words
from thinwire_private.protocols.operator import Messages, Operator
from thinwire_private.protocols.party import Party
from thinwire_private.protocols.product import BitProduct, Seeds
from thinwire_private.protocols.ring import encode, reduce, top_bit


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

"""Products: layers with weights as both parties run them, online or with their products made offline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator

import numpy as np

from thinwire_private.layers import PrivateLayer
from thinwire_private.message import CLIENT, ProtocolMessage
from thinwire_private.net.nodes import Add, IntArray, Weighted
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.extend import Extend, Truncate
from thinwire_private.protocols.linear import ActivationBits, Sirnn, SirnnSwapped, WeightBits, ring_matmul
from thinwire_private.protocols.operator import encode, reduce
from thinwire_private.rings import RLWE, WEIGHT_BITS, Rings
from thinwire_private.rlwe.keys import PUBLIC_KEY_BYTES, PublicKey, SecretKey
from thinwire_private.step import ASK, FINISH, OFFLINE, SETUP, Query, Step

PRODUCT_WORK = 8 << 10  # bytes of other steps that take as long as a product of polynomials


class ProductLayer(PrivateLayer[Weighted]):
    """acc = W x + b; behind it SiRNN's truncation by e, and its extension before a sum."""

    def __init__(self, rings: Rings, node: Weighted) -> None:
        super().__init__(rings, node)
        self._width, self._form = rings.accumulator(node), rings.form(node)
        cut = rings.cut(node)
        self._truncate = Truncate(self.count, self._width, cut, rings.kind) if cut else None
        self._widen: Extend | None = None
        if rings.widens(node):
            add = rings.reader(node)
            assert isinstance(add, Add)
            wide = rings.accumulator(add) - rings.cut(add) - rings.shift(add, node.name)
            self._widen = Extend(self.count, self._width - cut, wide, rings.kind, signed=True)

    def steps(self) -> Iterator[Step]:
        yield from self.product_steps()
        if self._truncate is not None:
            yield self.step("truncate", self._truncate.messages(), self.truncate)
        if self._widen is not None:
            yield self.step("extend", self._widen.messages(), self.widen)

    @abstractmethod
    def product_steps(self) -> Iterator[Step]:
        """The product and its bias."""

    def truncate(self, query: Query) -> None:
        """By e bits, as SiRNN does."""
        assert self._truncate is not None
        state = self.state(query)
        state.share = self._truncate.run(query.party, state.share)

    def widen(self, query: Query) -> None:
        """To the ring of the sum that reads it."""
        assert self._widen is not None
        state = self.state(query)
        state.share = self._widen.run(query.party, state.share)

    def weight(self, query: Query) -> IntArray | None:
        """W (d1 x d2) with the server, None with the client."""
        return self.node.matrix() if query.party.is_server else None

    def operand(self, x: Words) -> Words:
        """A flat batch as the matrix (d2, batch * d3) that the layer multiplies."""
        shaped = x.reshape(self.rings.batch, *self.node.taken[0].shape)
        columns: Words = self.node.operand(shaped)  # type: ignore[arg-type, assignment]
        return np.ascontiguousarray(columns.transpose(1, 0, 2)).reshape(columns.shape[1], -1)

    def store(self, query: Query, product: Words) -> None:
        """The product (d1, batch * d3) as a flat batch; the server adds bias and rounding to its share."""
        d1, _, d3 = self.node.dims
        batch = self.rings.batch
        y = np.ascontiguousarray(product.reshape(d1, batch, d3).transpose(1, 0, 2)).reshape(-1)
        if query.party.is_server:
            bias = np.full(d1, self.rings.rounding(self.node), np.int64)
            if self.node.bias is not None:
                bias = bias + self.node.bias
            y = y + np.tile(np.repeat(encode(bias, self._width), d3), batch)
        self.state(query).share = reduce(y, self._width)


class OnlineProduct(ProductLayer):
    """The whole product when the input is there."""

    def __init__(self, rings: Rings, node: Weighted) -> None:
        super().__init__(rings, node)
        self._operator = self._chosen()

    def _chosen(self) -> WeightBits | ActivationBits | Sirnn | SirnnSwapped:
        rings, node, width = self.rings, self.node, self._width
        shape, kind, msb = rings.shape(node), rings.kind, rings.variant.msb
        plain = rings.is_plain(node)
        in_width = node.in_bits if plain else rings.native(rings.graph[node.sources[0]])
        match self._form:
            case "weight_bits":
                return WeightBits(shape, width, kind)
            case "activation_bits":
                return ActivationBits(shape, in_width, width, kind, plain)
            case "sirnn":
                return Sirnn(shape, in_width, width, kind, msb, plain)
            case _:
                return SirnnSwapped(shape, in_width, width, kind, msb, plain)

    def product_steps(self) -> Iterator[Step]:
        yield self.step(self._form, self._operator.messages(), self.multiply)

    def multiply(self, query: Query) -> None:
        """Where the weight's bits choose, x is extended before; else it is in its native ring."""
        source = self.source(query)
        if self._form == WEIGHT_BITS:
            x = reduce(self.operand(source.wide), self._width)
        else:
            x = self.operand(source.share)
        self.store(query, self._operator.run(query.party, self.weight(query), x))


class MaskedProduct(ProductLayer):
    """The product of a mask is made offline; a local rest is left online."""

    def finish(self, query: Query) -> None:
        """The server adds W times what was opened."""
        state = self.state(query)
        product = state.product
        del state.product
        if query.party.is_server:
            x = reduce(self.operand(self.source(query).opened), self._width)
            product = product + ring_matmul(self.node.matrix(), x, self._width)
        self.store(query, product)


class SplitProduct(MaskedProduct):
    """By OT: the weight's bits choose; seeds once per client."""

    def __init__(self, rings: Rings, node: Weighted) -> None:
        super().__init__(rings, node)
        self._operator = WeightBits(rings.shape(node), self._width, rings.kind)

    def product_steps(self) -> Iterator[Step]:
        product = self._operator.product
        yield self.step("seeds", product.seed_messages(), self.make_seeds, SETUP)
        yield self.step(WEIGHT_BITS, product.payload_messages(), self.prepare, OFFLINE)
        yield self.step("product", (), self.finish)

    def make_seeds(self, query: Query) -> None:
        """The OTs of the weights."""
        query.kept.seeds[self.node.name] = self._operator.seeds(query.party, self.weight(query))

    def prepare(self, query: Query) -> None:
        """Shares of W r, r the client's mask."""
        mask = None
        if not query.party.is_server:
            mask = reduce(self.operand(self.source(query).mask), self._width)
        seeds = query.kept.seeds[self.node.name]
        self.state(query).product = self._operator.cross(query.party, seeds, mask)


class RlweLayer(MaskedProduct):
    """By ring-LWE: the client's ciphertexts, which the server answers at once; answers are read later."""

    def __init__(self, rings: Rings, node: Weighted) -> None:
        super().__init__(rings, node)
        product = rings.rlwe[node.name]
        assert product is not None
        self._product = product

    def product_steps(self) -> Iterator[Step]:
        layer, product = self.node.name, self._product
        yield Step(
            layer, RLWE, OFFLINE, product.question(), self.ask, ASK, product.num_products * PRODUCT_WORK
        )
        yield Step(layer, RLWE, OFFLINE, product.reply(), self.read, FINISH)
        yield self.step("product", (), self.finish)

    def ask(self, query: Query) -> None:
        """The client encrypts its mask; the server answers."""
        party, kept = query.party, query.kept
        if party.is_server:
            assert kept.public is not None
            factors = kept.factors.factors(self.node, self._product.packing)
            self.state(query).product = self._product.answer(party, kept.public, factors)
        else:
            assert kept.secret is not None
            packing = self._product.packing
            shape = (query.batch, packing.channels, packing.rows.size, packing.columns.size)
            self._product.ask(party, kept.secret, self.source(query).mask.reshape(shape))

    def read(self, query: Query) -> None:
        """The client decrypts."""
        if not query.party.is_server:
            assert query.kept.secret is not None
            self.state(query).product = self._product.finish(query.party, query.kept.secret)


def public_key() -> Step:
    """The client makes its key pair, once per session."""

    def act(query: Query) -> None:
        if query.party.is_server:
            query.kept.public = PublicKey(query.party.channel.receive(PUBLIC_KEY_BYTES))
        else:
            query.kept.secret = SecretKey(query.party.prg)
            query.party.channel.send(query.kept.secret.public())

    return Step("keys", "public_key", SETUP, (ProtocolMessage(CLIENT, PUBLIC_KEY_BYTES),), act)

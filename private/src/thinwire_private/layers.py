"""Layers: every kind of node as both parties run it: its protocols, their messages, what a party does.

Products with weights are in products.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import numpy as np

from thinwire_private.ahead import TriplesAhead
from thinwire_private.message import CLIENT, SERVER, ProtocolMessage
from thinwire_private.net.nodes import Add, GraphNode, MaxPool, Output, Requant, SumPool, Weighted, windows
from thinwire_private.ot.primitives import Words, packed_bytes
from thinwire_private.protocols.extend import Extend
from thinwire_private.protocols.operator import Messages, decode, encode, reduce
from thinwire_private.protocols.pool import Argmax, Max
from thinwire_private.protocols.requant import Requantize
from thinwire_private.rings import EXTENDED, Rings, half
from thinwire_private.step import OFFLINE, ONLINE, NodeState, Query, Step

Kind = TypeVar("Kind", bound=GraphNode)


class PrivateLayer(ABC, Generic[Kind]):
    """One node under a plan of rings; its steps call methods of this object, the same for both parties."""

    def __init__(self, rings: Rings, node: Kind) -> None:
        self.rings, self.node = rings, node
        self.count = node.value.size * rings.batch

    @abstractmethod
    def steps(self) -> Iterator[Step]:
        """What it adds to a program; steps of a phase are in the order in which they run."""

    def step(
        self, operator: str, messages: Messages, act: Callable[[Query], None], phase: str = ONLINE
    ) -> Step:
        """A step of this layer."""
        return Step(self.node.name, operator, phase, messages, act)

    def state(self, query: Query) -> NodeState:
        """What this party holds of the node."""
        return query.nodes[self.node.name]

    def source(self, query: Query) -> NodeState:
        """What this party holds of the node that this one reads."""
        return query.nodes[self.node.sources[0]]


class ActivationLayer(PrivateLayer[GraphNode]):
    """An activation in the widest ring that a reader asks for; the client's picture needs no protocol.

    Where products of it are made offline from a mask, the client opens online its share minus that mask.
    """

    def __init__(self, rings: Rings, node: GraphNode) -> None:
        super().__init__(rings, node)
        # A pool's sum has a top bit of 0 under every variant; an activation only where it is kept.
        is_pool, msb = isinstance(node, SumPool | MaxPool), rings.variant.msb
        form = "sirnn" if is_pool and msb == "none" else msb
        self._extend = Extend(self.count, rings.native(node), rings.extended(node), rings.kind, form)
        self._mask_width = self._masked_width()

    def _masked_width(self) -> int:
        """The ring of the mask; 0 if no product is made offline."""
        if not self.rings.variant.split:
            return 0
        layers = [reader for reader in self.rings.readers[self.node.name] if isinstance(reader, Weighted)]
        widths = (self.rings.accumulator(x) for x in layers if self.rings.form(x) in EXTENDED)
        return max(widths, default=0)

    def steps(self) -> Iterator[Step]:
        if self.node.kind == "input":
            yield self.step("input", (), self.take)
        else:
            yield self.step("extend", self._extend.messages(), self.extend)
        if self._mask_width:
            opening = ProtocolMessage(CLIENT, packed_bytes(self.count, self._mask_width))
            yield self.step("mask", (), self.draw_mask, OFFLINE)
            yield self.step("open", (opening,), self.open)

    def take(self, query: Query) -> None:
        """The client's picture as it is."""
        self.state(query).wide = self.state(query).share

    def extend(self, query: Query) -> None:
        """To the wide ring."""
        state = self.state(query)
        state.wide = self._extend.run(query.party, state.share)

    def draw_mask(self, query: Query) -> None:
        """The client's mask, before the input exists."""
        if not query.party.is_server:
            self.state(query).mask = query.party.prg.ring(self.count, self._mask_width)

    def open(self, query: Query) -> None:
        """The client sends its share minus the mask; one flight."""
        state, party, width = self.state(query), query.party, self._mask_width
        if party.is_server:
            state.opened = reduce(state.wide + party.receive_ring(self.count, width), width)
        else:
            party.send_ring(state.wide - state.mask, width)


class AddLayer(PrivateLayer[Add]):
    """A residual sum: local."""

    def steps(self) -> Iterator[Step]:
        yield self.step("add", (), self.add)

    def add(self, query: Query) -> None:
        """Both operands at the scale of the accumulator."""
        rings, node = self.rings, self.node
        states = [query.nodes[source] for source in node.sources]
        a, b = (
            (state.share if taken.signed else state.wide) << np.uint64(rings.shift(node, source))
            for state, source, taken in zip(states, node.sources, node.taken, strict=True)
        )
        self.state(query).share = reduce(a + b, rings.accumulator(node) - rings.cut(node))


class RequantLayer(PrivateLayer[Requant]):
    """Shift, ReLU, clamp; triples are made ahead where the offline phase is split off."""

    def __init__(self, rings: Rings, node: Requant) -> None:
        super().__init__(rings, node)
        source, variant = rings.graph[node.sources[0]], rings.variant
        self._is_signed = source.value.signed
        cut = rings.cut(source)
        if self._is_signed:
            self._width, clamp = rings.native(source), node.clamp
        else:
            most = (source.value.high + half(node)) >> node.shift
            asked = rings.asked(node, source.name)
            assert asked is not None
            self._width, clamp = asked, node.clamp and most > node.value.high
        self._operator = Requantize(
            self.count,
            self._width,
            node.shift - cut,
            node.value.bits,
            rings.native(node),
            rings.kind,
            node.relu,
            clamp,
            variant.fused_relu,
            variant.sci_mux,
            variant.msb,
            variant.split,
        )
        self._rounding = np.uint64(0 if cut else half(node))

    def steps(self) -> Iterator[Step]:
        if self.rings.variant.split:
            yield from TriplesAhead(self.node.name, self._operator.maker).steps()
        yield self.step("requant", self._operator.messages(), self.requantize)

    def requantize(self, query: Query) -> None:
        """The server adds the rounding term to its share."""
        state, source = self.state(query), self.source(query)
        x = source.share if self._is_signed else reduce(source.wide, self._width)
        if query.party.is_server:
            x = x + self._rounding
        state.share = self._operator.run(query.party, x, state.triples)
        state.triples = None


class SumPoolLayer(PrivateLayer[SumPool]):
    """Sums over windows: local."""

    def steps(self) -> Iterator[Step]:
        yield self.step("sum", (), self.add_up)

    def add_up(self, query: Query) -> None:
        """In the ring that the reader asks for."""
        node, width = self.node, self.rings.native(self.node)
        x = reduce(self.source(query).wide, width).reshape(query.batch, *node.taken[0].shape)
        sums = windows(x, node.kernel, node.stride, 0).sum(axis=(4, 5), dtype=np.uint64)
        self.state(query).share = reduce(sums.reshape(-1), width)


class MaxPoolLayer(PrivateLayer[MaxPool]):
    """The largest entry of every window, by a tournament."""

    def __init__(self, rings: Rings, node: MaxPool) -> None:
        super().__init__(rings, node)
        self._width = rings.native(node)
        self._operator = Max(self.count, node.kernel**2, self._width, rings.kind)
        self._smallest = int(encode(np.array([node.taken[0].low]), self._width)[0])

    def steps(self) -> Iterator[Step]:
        yield self.step("max", self._operator.messages(), self.find)

    def find(self, query: Query) -> None:
        """The border holds the smallest number, as a share of the server's."""
        node, source = self.node, self.source(query)
        x = source.share if node.value.signed else reduce(source.wide, self._width)
        fill = self._smallest if query.party.is_server else 0
        shaped = x.reshape(query.batch, *node.taken[0].shape)
        view = windows(shaped, node.kernel, node.stride, node.padding, fill)
        rows = view.transpose(4, 5, 0, 1, 2, 3).reshape(self._operator.size, -1)
        self.state(query).share = self._operator.run(query.party, np.ascontiguousarray(rows))


class OutputLayer(PrivateLayer[Output]):
    """The client learns the logits, or only where the largest one is."""

    def __init__(self, rings: Rings, node: Output) -> None:
        super().__init__(rings, node)
        source = rings.graph[node.sources[0]]
        self._argmax: Argmax | None = None
        if node.argmax:
            self._argmax = Argmax(rings.batch, source.value.size, rings.native(source), rings.kind)
            self._count, self._width, self._is_signed = rings.batch, self._argmax.index_bits, False
            self._shape: tuple[int, ...] = (rings.batch, 1)
        else:
            self._count, self._width = source.value.size * rings.batch, rings.native(source)
            self._is_signed, self._shape = source.value.signed, (rings.batch, *source.value.shape)

    def steps(self) -> Iterator[Step]:
        if self._argmax is not None:
            yield self.step("argmax", self._argmax.messages(), self.find)
        revealed = ProtocolMessage(SERVER, packed_bytes(self._count, self._width))
        yield self.step("reveal", (revealed,), self.reveal)

    def find(self, query: Query) -> None:
        """Where the largest logit is, shared."""
        assert self._argmax is not None
        x = np.ascontiguousarray(self.source(query).share.reshape(query.batch, -1).T)
        self.state(query).share = self._argmax.run(query.party, x)

    def reveal(self, query: Query) -> None:
        """The server's share goes to the client; nothing comes back."""
        own: Words = (self.source(query) if self._argmax is None else self.state(query)).share
        if query.party.is_server:
            query.party.send_ring(own, self._width)
        else:
            y = reduce(own + query.party.receive_ring(self._count, self._width), self._width)
            query.result = decode(y, self._width, self._is_signed).reshape(self._shape)

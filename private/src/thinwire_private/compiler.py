"""Compiler: turns the nodes of a graph into steps, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from thinwire_private.ahead import half_ots, triples
from thinwire_private.message import CLIENT, SERVER, Message
from thinwire_private.net.nodes import Add, MaxPool, Node, Output, Requant, SumPool, Weighted, windows
from thinwire_private.ot.primitives import Words, packed_bytes
from thinwire_private.protocols.extend import Extend, Truncate
from thinwire_private.protocols.linear import ActivationBits, Sirnn, SirnnSwapped, WeightBits, ring_matmul
from thinwire_private.protocols.operator import decode, encode, reduce
from thinwire_private.protocols.pool import Argmax, Max
from thinwire_private.protocols.requant import Requant as RequantOperator
from thinwire_private.rings import ACTIVATION_BITS, WEIGHT_BITS, Rings, half
from thinwire_private.step import OFFLINE, ONLINE, SETUP, Run, Step

Store = Callable[[Run, Words], None]


def steps_of(rings: Rings) -> Iterator[Step]:
    """All steps of a program: seeds (set-up), products of masks and half of the OTs (offline), then the
    layers."""
    for step in _layers(rings):
        yield step
        if rings.variant.split and step.phase == ONLINE and any(m.num_ots for m in step.messages):
            yield half_ots(step)


def _layers(rings: Rings) -> Iterator[Step]:
    for node in rings.graph:
        match node:
            case Weighted():
                yield from _weighted(rings, node)
            case Add():
                yield from _add(rings, node)
            case Requant():
                yield from _requant(rings, node)
            case SumPool():
                yield _sum_pool(rings, node)
            case MaxPool():
                yield _max_pool(rings, node)
            case Output():
                yield from _output(rings, node)
        if not node.value.signed:
            yield from _extend(rings, node)


def _count(rings: Rings, node: Node) -> int:
    return node.value.size * rings.batch


def _extend(rings: Rings, node: Node) -> Iterator[Step]:
    """An activation in the widest ring that a reader asks for; the client's picture needs no protocol."""
    native, wide = rings.native(node), rings.extended(node)
    if node.kind == "input":

        def give(run: Run) -> None:
            run.wide[node.name] = run.shares[node.name]

        yield Step(node.name, "input", ONLINE, (), give)
        yield from _open_masks(rings, node)
        return
    operator = Extend(_count(rings, node), native, wide, rings.kind, _form(rings, node))

    def act(run: Run) -> None:
        run.wide[node.name] = operator.run(run.party, run.shares[node.name])

    yield Step(node.name, "extend", ONLINE, operator.messages(), act)
    yield from _open_masks(rings, node)


def _form(rings: Rings, node: Node) -> str:
    """A pool's sum has a top bit of 0 under every variant; an activation only where it is kept."""
    return (
        "sirnn" if isinstance(node, SumPool | MaxPool) and rings.variant.msb == "none" else rings.variant.msb
    )


def _masked_width(rings: Rings, node: Node) -> int:
    """The ring of the mask of an activation; 0 if no product of it is made offline."""
    if not rings.variant.split:
        return 0
    layers = [reader for reader in rings.readers[node.name] if isinstance(reader, Weighted)]
    return max((rings.accumulator(x) for x in layers if rings.form(x) == WEIGHT_BITS), default=0)


def _open_masks(rings: Rings, node: Node) -> Iterator[Step]:
    """Online, the client sends its share minus the mask of which the products were made; one flight."""
    width, count = _masked_width(rings, node), _count(rings, node)
    if not width:
        return

    def draw(run: Run) -> None:
        if not run.party.is_server:
            run.prepared.masks[node.name] = run.party.prg.ring(count, width)

    def act(run: Run) -> None:
        own = run.wide[node.name]
        if run.party.is_server:
            run.wide[f"{node.name} opened"] = reduce(own + run.party.receive_ring(count, width), width)
        else:
            run.party.send_ring(own - run.prepared.masks[node.name], width)

    yield Step(node.name, "mask", OFFLINE, (), draw)
    yield Step(node.name, "open", ONLINE, (Message(CLIENT, packed_bytes(count, width)),), act)


def _weighted(rings: Rings, layer: Weighted) -> Iterator[Step]:
    source = layer.sources[0]
    width, form, shape = rings.accumulator(layer), rings.form(layer), rings.shape(layer)
    plain, kind = rings.is_plain(layer), rings.kind
    rounding = rings.rounding(layer)

    def store(run: Run, product: Words) -> None:
        """The server adds bias and rounding to its share."""
        y = run.accumulator(layer, product)
        if run.party.is_server:
            bias = np.full(layer.dims[0], rounding, np.int64)
            if layer.bias is not None:
                bias = bias + layer.bias
            each = np.repeat(encode(bias, width), layer.dims[2])
            y = y + np.tile(each, run.batch)
        run.shares[layer.name] = reduce(y, width)

    if form == WEIGHT_BITS:
        operator = WeightBits(shape, width, kind)
        yield from _weight_bits(rings, layer, operator, store)
    else:
        in_width = layer.in_bits if plain else rings.native(rings.graph[source])
        other: ActivationBits | Sirnn | SirnnSwapped
        if form == ACTIVATION_BITS:
            other = ActivationBits(shape, in_width, width, kind, plain)
        elif form == "sirnn":
            other = Sirnn(shape, in_width, width, kind, rings.variant.msb, plain)
        else:
            other = SirnnSwapped(shape, in_width, width, kind, rings.variant.msb, plain)

        def act(run: Run) -> None:
            x = run.operand(layer, run.shares[source])
            store(run, other.run(run.party, run.weight(layer), x))

        yield Step(layer.name, form, ONLINE, other.messages(), act)
    yield from _narrow(rings, layer)


def _weight_bits(rings: Rings, layer: Weighted, operator: WeightBits, store: Store) -> Iterator[Step]:
    source, width, split = layer.sources[0], operator.width, rings.variant.split

    def seed(run: Run) -> None:
        run.seeds[layer.name] = operator.seeds(run.party, run.weight(layer))

    def prepare(run: Run) -> None:
        mask = None
        if not run.party.is_server:
            mask = reduce(run.operand(layer, run.prepared.masks[source]), width)
        run.prepared.products[layer.name] = operator.cross(run.party, run.seeds[layer.name], mask)

    def finish(run: Run) -> None:
        product = run.prepared.products.pop(layer.name)
        if run.party.is_server:
            x = run.operand(layer, run.wide[f"{source} opened"])
            product = product + ring_matmul(layer.matrix(), reduce(x, width), width)
        store(run, product)

    def multiply(run: Run) -> None:
        x = reduce(run.operand(layer, run.wide[source]), width)
        store(run, operator.run(run.party, run.weight(layer), x))

    if split:
        product = operator.product
        yield Step(layer.name, "seeds", SETUP, product.seed_messages(), seed)
        yield Step(layer.name, "weight_bits", OFFLINE, product.payload_messages(), prepare)
        yield Step(layer.name, "product", ONLINE, (), finish)
    else:
        yield Step(layer.name, "weight_bits", ONLINE, operator.messages(), multiply)


def _narrow(rings: Rings, layer: Weighted) -> Iterator[Step]:
    """SiRNN's truncation by e, and its extension before a sum."""
    width, cut, count = rings.accumulator(layer), rings.cut(layer), _count(rings, layer)
    if cut:
        truncate = Truncate(count, width, cut, rings.kind)

        def act(run: Run) -> None:
            run.shares[layer.name] = truncate.run(run.party, run.shares[layer.name])

        yield Step(layer.name, "truncate", ONLINE, truncate.messages(), act)
    if rings.widens(layer):
        add = rings.reader(layer)
        assert isinstance(add, Add)
        wide = rings.accumulator(add) - rings.cut(add) - rings.shift(add, layer.name)
        extend = Extend(count, width - cut, wide, rings.kind, signed=True)

        def widen(run: Run) -> None:
            run.shares[layer.name] = extend.run(run.party, run.shares[layer.name])

        yield Step(layer.name, "extend", ONLINE, extend.messages(), widen)


def _add(rings: Rings, node: Add) -> Iterator[Step]:
    width = rings.accumulator(node) - rings.cut(node)

    def act(run: Run) -> None:
        a, b = (
            (run.shares if taken.signed else run.wide)[source] << np.uint64(rings.shift(node, source))
            for source, taken in zip(node.sources, node.taken, strict=True)
        )
        run.shares[node.name] = reduce(a + b, width)

    yield Step(node.name, "add", ONLINE, (), act)


def _requant(rings: Rings, node: Requant) -> Iterator[Step]:
    source = rings.graph[node.sources[0]]
    cut = rings.cut(source)
    if source.value.signed:
        width, clamp = rings.native(source), node.clamp
    else:
        most = (source.value.high + half(node)) >> node.shift
        asked = rings.asked(node, source.name)
        assert asked is not None
        width, clamp = asked, node.clamp and most > node.value.high
    variant = rings.variant
    operator = RequantOperator(
        _count(rings, node),
        width,
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
    rounding = np.uint64(0 if cut else half(node))

    def act(run: Run) -> None:
        x = run.shares[source.name] if source.value.signed else reduce(run.wide[source.name], width)
        stock = run.prepared.triples.pop(node.name, None)  # None: nothing is ANDed
        run.shares[node.name] = operator.run(run.party, x + rounding if run.party.is_server else x, stock)

    if variant.split and operator.maker.messages():
        yield from triples(node.name, operator.maker)
    yield Step(node.name, "requant", ONLINE, operator.messages(), act)


def _sum_pool(rings: Rings, node: SumPool) -> Step:
    source, width = node.sources[0], rings.native(node)

    def act(run: Run) -> None:
        x = reduce(run.wide[source], width).reshape(run.batch, *node.taken[0].shape)
        sums = windows(x, node.kernel, node.stride, 0).sum(axis=(4, 5), dtype=np.uint64)
        run.shares[node.name] = reduce(sums.reshape(-1), width)

    return Step(node.name, "sum", ONLINE, (), act)


def _max_pool(rings: Rings, node: MaxPool) -> Step:
    source, width = node.sources[0], rings.native(node)
    operator = Max(_count(rings, node), node.kernel**2, width, rings.kind)
    smallest = int(encode(np.array([node.taken[0].low]), width)[0])

    def act(run: Run) -> None:
        x = run.shares[source] if node.value.signed else reduce(run.wide[source], width)
        fill = smallest if run.party.is_server else 0
        shaped = x.reshape(run.batch, *node.taken[0].shape)
        view = windows(shaped, node.kernel, node.stride, node.padding, fill)
        rows = view.transpose(4, 5, 0, 1, 2, 3).reshape(operator.size, -1)
        run.shares[node.name] = operator.run(run.party, np.ascontiguousarray(rows))

    return Step(node.name, "max", ONLINE, operator.messages(), act)


def _output(rings: Rings, node: Output) -> Iterator[Step]:
    source = rings.graph[node.sources[0]]
    width, signed = rings.native(source), source.value.signed
    name, count = node.name, _count(rings, source)
    if node.argmax:
        operator = Argmax(rings.batch, source.value.size, width, rings.kind)

        def find(run: Run) -> None:
            x = np.ascontiguousarray(run.shares[source.name].reshape(run.batch, -1).T)
            run.shares[name] = operator.run(run.party, x)

        yield Step(name, "argmax", ONLINE, operator.messages(), find)
        count, width, signed = rings.batch, operator.index_bits, False

    def reveal(run: Run) -> None:
        """The server's share goes to the client; nothing comes back."""
        own = run.shares[name if node.argmax else source.name]
        if run.party.is_server:
            run.party.send_ring(own, width)
        else:
            y = reduce(own + run.party.receive_ring(count, width), width)
            shape = (run.batch, 1) if node.argmax else (run.batch, *source.value.shape)
            run.result = decode(y, width, signed).reshape(shape)

    yield Step(name, "reveal", ONLINE, (Message(SERVER, packed_bytes(count, width)),), reveal)

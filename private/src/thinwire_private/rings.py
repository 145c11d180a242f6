"""Rings: in how many bits the shares of every node live, decided before anything runs; public."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil, log2

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, GraphNode, MaxPool, Output, Requant, SumPool, Weighted
from thinwire_private.net.widths import signed_bits, worst_case
from thinwire_private.ot.kind import OtKind
from thinwire_private.protocols.extend import UNKNOWN, Extend
from thinwire_private.protocols.linear import ActivationBits, Shape, WeightBits
from thinwire_private.protocols.rlwe_product import RlweProduct
from thinwire_private.rlwe.keys import PUBLIC_KEY_BYTES
from thinwire_private.variant import Variant

WEIGHT_BITS, ACTIVATION_BITS, RLWE = "weight_bits", "activation_bits", "rlwe"
EXTENDED = (WEIGHT_BITS, RLWE)  # forms that read an activation in the ring of their accumulator


def half(node: Requant) -> int:
    """What is added before the shift, so that it rounds half up."""
    return (1 << node.shift) >> 1


@dataclass(frozen=True, eq=False)
class Rings:
    """The plan of widths for a graph under a variant.

    An activation lives in l_x + 1 bits with a top bit of 0, or in l_x bits where nothing is known of it.
    It is extended once, to the widest ring that one of its readers asks for. A product has its
    accumulator's width; a max pool or an argmax asks for one bit more, for differences.
    """

    graph: Graph
    variant: Variant
    batch: int

    @property
    def kind(self) -> OtKind:
        """The OT extension."""
        return self.variant.kind

    @cached_property
    def readers(self) -> dict[str, list[GraphNode]]:
        """Who reads a node."""
        found: dict[str, list[GraphNode]] = {node.name: [] for node in self.graph}
        for node in self.graph:
            for source in node.sources:
                found[source].append(node)
        return found

    def reader(self, node: GraphNode) -> GraphNode:
        """The one reader of an accumulator."""
        readers = self.readers[node.name]
        if len(readers) != 1:
            raise ModelError(
                f"accumulator {node.name} has {len(readers)} readers: requantize it once, then share"
            )
        return readers[0]

    def native(self, node: GraphNode) -> int:
        """The ring in which a node's shares come out."""
        if node.value.signed:
            return self.accumulator(node) - self.cut(node)
        match node:
            case SumPool():
                return max(self.asked(reader, node.name) or 0 for reader in self.readers[node.name])
            case MaxPool():
                return node.value.bits + 1
            case _:
                return node.value.bits + (self.variant.msb != UNKNOWN)

    def accumulator(self, node: GraphNode) -> int:
        """The ring of a signed node before any truncation."""
        match node:
            case Weighted() if self.widens(node):
                return self.natural(node)
            case Output():
                return self.accumulator(self.graph[node.sources[0]])
            case _:
                reader = self.reader(node)
                one_more = isinstance(reader, MaxPool) or (isinstance(reader, Output) and reader.argmax)
                more = isinstance(node, MaxPool) and not one_more
                return node.value.bits + (one_more or more)

    def natural(self, layer: Weighted) -> int:
        """What a product needs by itself, whatever the weights are: about l_w + l_x + e."""
        low, high = worst_case(layer.dims[1], layer.weight_bits, layer.in_bits)
        return min(layer.value.bits, signed_bits(low, high + self.rounding(layer)))

    def widens(self, layer: Weighted) -> bool:
        """Whether a product is extended afterwards to be added, as SiRNN does."""
        return not self.variant.residual_at_accumulator and isinstance(self.reader(layer), Add)

    def cut(self, node: GraphNode) -> int:
        """Bits that SiRNN's first truncation takes off this accumulator: at most e, and none that matters.

        Behind a sum only those below the shortcut: else the rounding of the result could change.
        """
        if self.variant.single_truncation or not node.value.signed:
            return 0
        if isinstance(node, Add):
            return self.cut(self.graph[node.sources[0]])
        if not isinstance(node, Weighted):
            return 0
        e, reader = ceil(log2(node.dims[1])), self.reader(node)
        if isinstance(reader, Requant):
            return min(e, reader.shift)
        if isinstance(reader, Add) and reader.sources[0] == node.name:
            after = self.reader(reader)
            plain = not reader.taken[1].signed and reader.shifts[0] == 0
            if plain and isinstance(after, Requant):
                return min(e, reader.shifts[1], after.shift)
        return 0

    def rounding(self, node: GraphNode) -> int:
        """What the server adds to this accumulator before its own truncation."""
        if not self.cut(node):
            return 0
        reader = self.reader(node)
        after = self.reader(reader) if isinstance(reader, Add) else reader
        return half(after) if isinstance(after, Requant) else 0

    def asked(self, reader: GraphNode, source: str) -> int | None:
        """The ring that a reader needs an activation in; None: its native one."""
        match reader:
            case Weighted():
                return self.accumulator(reader) if self.form(reader) in EXTENDED else None
            case SumPool():
                return self.native(reader)
            case Requant():
                return (reader.taken[0].high + half(reader)).bit_length() + 1
            case Add():
                return self.accumulator(reader) - self.cut(reader) - self.shift(reader, source)
            case MaxPool():
                return self.native(reader)
            case _:
                return None

    def shift(self, add: Add, source: str) -> int:
        """How far an operand of a sum is shifted, after what was cut."""
        place = add.sources.index(source)
        return add.shifts[place] - (self.cut(add) if place else 0)

    def extended(self, node: GraphNode) -> int:
        """The ring an activation is extended to; its native one if nobody asks."""
        if node.value.signed:
            return self.native(node)
        asked = [self.asked(reader, node.name) or 0 for reader in self.readers[node.name]]
        return max([self.native(node), *asked])

    def shape(self, layer: Weighted) -> Shape:
        """The product of a whole batch."""
        d1, d2, d3 = layer.dims
        return Shape(d1, d2, d3 * self.batch, layer.weight_bits)

    def is_plain(self, layer: Weighted) -> bool:
        """Whether the layer reads the client's picture itself."""
        return self.graph[layer.sources[0]].kind == "input"

    def form(self, layer: Weighted) -> str:
        """Whose bits choose, or ring-LWE: fixed by the variant, or the cheapest, extension included."""
        if self.variant.conv != "adaptive":
            return self.variant.conv
        return self._forms[layer.name]

    @cached_property
    def _forms(self) -> dict[str, str]:
        """Ring-LWE only where all layers that gain by it save more than the public key costs."""
        forms = {layer.name: self._by_ot(layer) for layer in self.graph.layers}
        if self.variant.rlwe:
            saved = {}
            for layer in self.graph.layers:
                product = self.rlwe[layer.name]
                if product is not None:
                    saved[layer.name] = (
                        forms[layer.name][1] - product.predict_bytes() - self._extension(layer)
                    )
            better = {name: gain for name, gain in saved.items() if gain > 0}
            if sum(better.values()) > PUBLIC_KEY_BYTES:
                forms |= dict.fromkeys(better, (RLWE, 0))
        return {name: form for name, (form, _) in forms.items()}

    @cached_property
    def rlwe(self) -> dict[str, RlweProduct | None]:
        """The products by ring-LWE, by layer; None where no secure parameters have room."""
        return {
            layer.name: RlweProduct.of(layer, self.accumulator(layer), self.batch)
            for layer in self.graph.layers
        }

    def _extension(self, layer: Weighted) -> int:
        """Bytes for extending what a layer reads to the ring of its accumulator."""
        if self.is_plain(layer):
            return 0
        source = self.graph[layer.sources[0]]
        native = source.value.bits + (self.variant.msb != UNKNOWN)
        count, width = source.value.size * self.batch, self.accumulator(layer)
        return Extend(count, native, width, self.kind, self.variant.msb).predict_bytes()

    def _by_ot(self, layer: Weighted) -> tuple[str, int]:
        """The cheaper side, and its bytes."""
        source, width, shape = self.graph[layer.sources[0]], self.accumulator(layer), self.shape(layer)
        native = source.value.bits + (self.variant.msb != UNKNOWN)
        by_weight = WeightBits(shape, width, self.kind).predict_bytes() + self._extension(layer)
        plain = self.is_plain(layer)
        known = plain or self.variant.msb != UNKNOWN
        in_width = source.value.bits if plain else native
        by_activation = ActivationBits(shape, in_width, width, self.kind, plain).predict_bytes()
        if known and by_activation < by_weight:
            return ACTIVATION_BITS, by_activation
        return WEIGHT_BITS, by_weight

"""A CoPriv-like baseline, by the predictor only: one ring for everything, CrypTFlow2's protocols, Winograd.

CoPriv (Zeng et al., NeurIPS 2023) prunes ReLUs besides; that part is not modelled, and nothing is run.
"""

from __future__ import annotations

from math import ceil

from thinwire_private.message import SERVER, WireTraffic, traffic
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Conv, GraphNode, MaxPool, Requant, Weighted
from thinwire_private.ot.kind import OtKind
from thinwire_private.program import CostRow
from thinwire_private.protocols.extend import Ars
from thinwire_private.protocols.operator import Operator
from thinwire_private.protocols.pool import Max
from thinwire_private.protocols.product import BitProduct
from thinwire_private.protocols.sign import Relu
from thinwire_private.step import ONLINE

RING_BITS = 37
SCALE_BITS = 12
TILE = 2  # F(2x2, 3x3): 16 products make a tile of 2 x 2 outputs
TILE_PRODUCTS = (TILE + 3 - 1) ** 2


def copriv_costs(graph: Graph, winograd: bool = True, ring_bits: int = RING_BITS) -> tuple[CostRow, ...]:
    """Rows for one picture, batch 1, KK13 and IKNP.

    1. A product W X, (d1 x d2) by (d2 x d3), takes the weights' l bits: d1 d2 (l c2 + d3 l (l + 1) / 2) bits.
       A 3x3 convolution of stride 1 is 16 products of K x C and C x tiles instead.
    2. Every requant is a truncation that keeps l bits, and a ReLU of l bits. Sums and averages are local.
    """
    kind = OtKind.read("kk13+iknp")
    rows = []
    for node in graph:
        for name, operator, times in _operators(node, winograd, ring_bits, kind):
            each = traffic(operator.messages())
            total = sum([each] * times, WireTraffic())
            rows.append(CostRow(node.name, name, ONLINE, total))
    return tuple(rows)


def _operators(node: GraphNode, winograd: bool, bits: int, kind: OtKind) -> list[tuple[str, Operator, int]]:
    match node:
        case Conv(kernel=3, stride=1) if winograd:
            out, height, width = node.value.shape
            tiles = ceil(height / TILE) * ceil(width / TILE)
            product = BitProduct(out, node.taken[0].shape[0], tiles, bits, bits, True, SERVER, kind)
            return [("winograd", product, TILE_PRODUCTS)]
        case Weighted():
            d1, d2, d3 = node.dims
            return [("product", BitProduct(d1, d2, d3, bits, bits, True, SERVER, kind), 1)]
        case Requant():
            count = node.value.size
            steps: list[tuple[str, Operator, int]] = [("truncate", Ars(count, bits, SCALE_BITS, kind), 1)]
            return [*steps, ("relu", Relu(count, bits, kind, chosen=True), 1)] if node.relu else steps
        case MaxPool():
            return [("max", Max(node.value.size, node.kernel**2, bits, kind), 1)]
        case _:
            return []

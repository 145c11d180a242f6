"""Prices: the bytes that one private picture costs, from the exact model of the protocols."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from thinwire_private.net.bits import bits_from_facts
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, Node, Requant
from thinwire_private.net.widths import settled
from thinwire_private.net.zoo import ZOO, build
from thinwire_private.program import compile_graph
from thinwire_private.step import OFFLINE, ONLINE
from thinwire_private.variant import variant

PROTOCOLS = "ours"
Row = dict[str, Any]


def picture_bytes(graph: Graph, protocols: str = PROTOCOLS) -> int:
    """Bytes for one picture, both directions, offline and online; one-time set-up is not in it."""
    return compile_graph(graph, variant(protocols)).total(OFFLINE, ONLINE).total_bytes


def shifts_of(graph: Graph) -> dict[str, Any]:
    """The trained shifts: with the bits, all that the bytes of a network of the zoo depend on."""
    shifts: dict[str, Any] = {node.name: node.shift for node in graph.of(Requant)}
    return shifts | {node.name: list(node.shifts) for node in graph.of(Add)}


def priced(row: Row) -> Row:
    """A recorded run with its bytes under the protocols of today; of networks outside the zoo as recorded."""
    if row["net"] not in ZOO:
        return row
    graph = build(row["net"], bits_from_facts(row["bits"]))

    def shifted(node: Node) -> Node:
        match node:
            case Requant():
                return replace(node, shift=row["shifts"][node.name])
            case Add():
                first, second = row["shifts"][node.name]
                return replace(node, shifts=(first, second))
            case _:
                return node

    nodes = settled([shifted(node) for node in graph])
    return {**row, "bytes": picture_bytes(replace(graph, nodes=nodes))}

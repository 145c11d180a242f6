"""Prices: the bytes that one private picture costs, from the exact model of the protocols."""

from __future__ import annotations

from thinwire.private.net.graph import Graph
from thinwire.private.program import compile_graph
from thinwire.private.step import OFFLINE, ONLINE
from thinwire.private.variant import variant

PROTOCOLS = "ours"


def picture_bytes(graph: Graph, protocols: str = PROTOCOLS) -> int:
    """Bytes for one picture, both directions, offline and online; one-time set-up is not in it."""
    return compile_graph(graph, variant(protocols)).total(OFFLINE, ONLINE).total_bytes

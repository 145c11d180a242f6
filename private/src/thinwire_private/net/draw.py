"""Random weights: a graph filled with integers of its own widths, for tests and for counting bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Weighted
from thinwire_private.net.value import IntArray


def with_random_weights(graph: Graph, seed: int = 0) -> Graph:
    """The graph with weights drawn evenly from their range, and small biases."""
    generator = np.random.default_rng(seed)

    def filled(layer: Weighted) -> Weighted:
        half = 1 << (layer.weight_bits - 1)
        weight = generator.integers(-half, half, layer.weight_shape, dtype=np.int64)
        bias = generator.integers(-half, half, layer.weight_shape[:1], dtype=np.int64)
        return replace(layer, weight=weight, bias=bias)

    full = {layer.name: filled(layer) for layer in graph.layers}
    return graph.map(lambda node: full.get(node.name, node))


def random_pictures(graph: Graph, count: int, seed: int = 0) -> IntArray:
    """Inputs drawn evenly from the input's range: (count, *shape)."""
    value = graph.input.value
    generator = np.random.default_rng(seed)
    return generator.integers(0, value.high + 1, (count, *value.shape), dtype=np.int64)

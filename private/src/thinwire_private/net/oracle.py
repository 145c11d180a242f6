"""The oracle: what a graph computes, in plain integers; the private run must equal it bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray, Requant

BATCH = 64


@dataclass(frozen=True)
class Overflow:
    """How many numbers of a requant did not fit: clamped, or wrapped in the fast mode."""

    node: str
    count: int
    of: int


def check_input(graph: Graph, x: IntArray) -> IntArray:
    """x as integers (N, *shape), one picture or many; refuses other shapes and ranges."""
    value = graph.input.value
    if x.shape == value.shape:
        x = x[None]
    if x.shape[1:] != value.shape:
        shape = "x".join(map(str, value.shape))
        raise ModelError(f"the input has shape {x.shape}, the network takes pictures of {shape}")
    if x.dtype.kind not in "iu":
        raise ModelError(f"the input holds {x.dtype} numbers: give integers from 0 to {value.high}")
    if x.size and (x.min() < 0 or x.max() > value.high):
        raise ModelError(f"the input leaves its range: give integers from 0 to {value.high}")
    return x.astype(np.int64)


def trace(graph: Graph, x: IntArray) -> dict[str, IntArray]:
    """Every node's output for a batch of pictures x (N, *shape)."""
    x = check_input(graph, x)
    found: dict[str, IntArray] = {}
    for node in graph:
        found[node.name] = node.apply(*(found[source] for source in node.sources)) if node.sources else x
    return found


def run(graph: Graph, x: IntArray) -> IntArray:
    """The output for pictures x (N, *shape), computed a few at a time: logits, or the argmax."""
    return np.concatenate([found[graph.output.name] for found in _batches(graph, x)])


def predict(graph: Graph, x: IntArray) -> IntArray:
    """The class of every picture."""
    y = run(graph, x)
    return y[:, 0] if graph.output.argmax else y.argmax(axis=1)


def overflows(graph: Graph, x: IntArray) -> list[Overflow]:
    """For every requant, how many of its numbers are above 2^l_x - 1 before the clamp."""
    counts = {node.name: 0 for node in graph.of(Requant)}
    for found in _batches(graph, x):
        for node in graph.of(Requant):
            counts[node.name] += int((node.shifted(found[node.sources[0]]) > node.value.high).sum())
    pictures = len(check_input(graph, x))
    return [Overflow(node.name, counts[node.name], pictures * node.value.size) for node in graph.of(Requant)]


def _batches(graph: Graph, x: IntArray) -> Iterator[dict[str, IntArray]]:
    x = check_input(graph, x)
    for start in range(0, len(x), BATCH):
        yield trace(graph, x[start : start + BATCH])

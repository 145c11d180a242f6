"""Compiler: turns the nodes of a graph into a program: steps in the order in which they run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from thinwire_private.ahead import HalfOts, in_pipeline
from thinwire_private.errors import ModelError
from thinwire_private.layers import (
    ActivationLayer,
    AddLayer,
    MaxPoolLayer,
    OutputLayer,
    PrivateLayer,
    RequantLayer,
    SumPoolLayer,
)
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, GraphNode, MaxPool, Output, Requant, SumPool, Weighted
from thinwire_private.net.widths import WEIGHTS
from thinwire_private.products import OnlineProduct, RlweLayer, SplitProduct, public_key
from thinwire_private.program import Program
from thinwire_private.rings import RLWE, WEIGHT_BITS, Rings
from thinwire_private.step import OFFLINE, ONLINE, Step
from thinwire_private.variant import Variant


def prepare_graph(graph: Graph, variant: Variant) -> Graph:
    """The graph as the variant runs it: with or without clamps, with worst-case or tight accumulators.

    The server does this and tells the client the public half.
    """
    if not variant.clamp:
        graph = graph.fast()
    if variant.tight_acc and graph.acc_rule != WEIGHTS:
        graph = graph.fit_accumulators(WEIGHTS)
    return graph


def compile_graph(graph: Graph, variant: Variant, batch: int = 1) -> Program:
    """The program of a graph; the client compiles the public graph and gets the same steps."""
    if batch < 1:
        raise ModelError(f"a batch of {batch} pictures cannot be run: give 1 or more")
    steps = tuple(_steps(Rings(graph, variant, batch)))
    offline = in_pipeline(step for step in steps if step.phase == OFFLINE)
    return Program(graph, variant, batch, (*(step for step in steps if step.phase != OFFLINE), *offline))


def _steps(rings: Rings) -> Iterator[Step]:
    """All steps: seeds (set-up), products of masks and half of the OTs (offline), then the layers."""
    if any(rings.form(layer) == RLWE for layer in rings.graph.layers):
        yield public_key()
    for node in rings.graph:
        for layer in _layers(rings, node):
            for step in layer.steps():
                yield step
                if rings.variant.split and step.phase == ONLINE and any(m.num_ots for m in step.messages):
                    yield HalfOts(step).step()


def _layers(rings: Rings, node: GraphNode) -> Iterator[PrivateLayer[Any]]:
    match node:
        case Weighted() if rings.form(node) == RLWE:
            yield RlweLayer(rings, node)
        case Weighted() if rings.variant.split and rings.form(node) == WEIGHT_BITS:
            yield SplitProduct(rings, node)
        case Weighted():
            yield OnlineProduct(rings, node)
        case Add():
            yield AddLayer(rings, node)
        case Requant():
            yield RequantLayer(rings, node)
        case SumPool():
            yield SumPoolLayer(rings, node)
        case MaxPool():
            yield MaxPoolLayer(rings, node)
        case Output():
            yield OutputLayer(rings, node)
    if not node.value.signed:
        yield ActivationLayer(rings, node)

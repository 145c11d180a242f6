"""Export: a trained QNet as a graph of integers, equal to it on every picture."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import WORST, Graph
from thinwire_private.net.nodes import Add, Node, Output, Requant, SumPool, Weighted
from thinwire_private.net.value import IntArray
from thinwire_private.net.widths import bias_limit, settled
from thinwire_private.train.qnet import QNet, pool_exponent


@torch.no_grad()
def export(net: QNet, acc_rule: str = WORST) -> Graph:
    """The graph with the net's integers: weights, biases, and shifts from the exponents."""
    if not net.quantized:
        raise ModelError("the network still has float activations: quantize it before it is exported")
    exponents = {net.graph.input.name: net.graph.input.exponent}
    nodes: list[Node] = []
    for node in net.graph:
        given = [exponents[source] for source in node.sources]
        made, exponent = _node(net, node, given) if given else (node, net.graph.input.exponent)
        exponents[node.name] = exponent
        nodes.append(made)
    return replace(net.graph, nodes=settled(nodes, acc_rule), acc_rule=acc_rule)


def _node(net: QNet, node: Node, given: list[int]) -> tuple[Node, int]:
    match node:
        case Weighted():
            layer = net.layer(node.name)
            exponent = layer.quantizer.exponent()
            weight = _integers(layer.weight, exponent, *layer.quantizer.range(node.weight_bits))
            limit = bias_limit(node)
            bias = _integers(layer.bias, given[0] + exponent, -limit, limit)
            return replace(node, weight=weight, bias=bias), given[0] + exponent
        case Requant():
            exponent = net.step(node.name).exponent(given[0])
            return replace(node, shift=given[0] - exponent), exponent
        case Add():
            exponent = max(given)
            return replace(node, shifts=(exponent - given[0], exponent - given[1])), exponent
        case SumPool():
            return node, given[0] + pool_exponent(node)
        case Output():
            return replace(node, exponent=given[0]), given[0]
        case _:
            return node, given[0]


def _integers(values: Tensor, exponent: int, low: int, high: int) -> IntArray:
    rounded = (values * 2.0**exponent + 0.5).floor().clamp(low, high)
    return rounded.double().numpy().astype(np.int64)

"""ResNet-50 on pictures of 224x224: the first network of real size, run by two processes, logits compared.

Nobody has trained it at these widths here. Its weights are random, and calibrated as batch normalisation
would: every channel's bias takes off its mean over some pictures, and every shift lets activations use their
range.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from thinwire.errors import PrivateError
from thinwire_lab.private.ladder import summary
from thinwire_lab.private.parties import BenchClient, BenchServer, run_parties
from thinwire_lab.private.records import BenchOptions, Row, Say
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import GraphNode, IntArray, Requant, Weighted
from thinwire_private.net.widths import bias_limit, fit_accumulators
from thinwire_private.net.zoo import read_net

NETS = ("resnet50:W4A6",)
PICTURES = 3
ACTIVE = 0.2  # of a layer's activations are not zero, at least
REACH = 99.5  # percent of the positive sums stay below the clamp


def blurred_pictures(graph: Graph, count: int, seed: int = 0) -> IntArray:
    """Pictures of coarse random patches: neighbours are alike, pictures are not."""
    value, dice = graph.input.value, np.random.default_rng(seed)
    channels, height, width = value.shape
    coarse = dice.integers(0, value.high + 1, (count, channels, height // 16, width // 16))
    fine: IntArray = np.kron(coarse, np.ones((1, 1, 16, 16), np.int64))
    noise = dice.integers(-value.high // 8, value.high // 8 + 1, fine.shape)
    pictures: IntArray = np.clip(fine + noise, 0, value.high)
    return pictures


def calibrated(graph: Graph, x: IntArray, seed: int = 0) -> Graph:
    """The graph with random weights, biases and shifts that keep every layer alive on pictures like x."""
    dice = np.random.default_rng(seed)
    found: dict[str, IntArray] = {}
    made: list[GraphNode] = []
    for node in graph:
        given = [found[source] for source in node.sources] or [x]
        if isinstance(node, Weighted):
            node = _filled(node, given[0], dice)
        elif isinstance(node, Requant):
            node = replace(node, shift=_shift(node, given[0]))
        found[node.name] = node.apply(*given)
        made.append(node)
    return replace(graph, nodes=fit_accumulators(made))


def _filled(layer: Weighted, x: IntArray, dice: np.random.Generator) -> Weighted:
    most = (1 << (layer.weight_bits - 1)) - 1
    bare = replace(layer, weight=dice.integers(-most, most + 1, layer.weight_shape), bias=None)
    sums = bare.apply(x)
    axes = (0, *range(2, sums.ndim))
    limit = bias_limit(layer)
    return replace(bare, bias=np.clip(-np.round(sums.mean(axis=axes)), -limit, limit).astype(np.int64))


def _shift(node: Requant, x: IntArray) -> int:
    positive = x[x > 0]
    top = np.percentile(positive, REACH) if positive.size else 1.0
    return int(np.clip(np.ceil(np.log2(top / node.value.high)), 0, node.taken[0].bits - 1))


def large(options: BenchOptions, say: Say) -> Iterator[Row]:
    """One picture by `ours`: bytes, seconds and memory of both parties, and how many activations live."""
    for net in NETS:
        say(f"{net}, calibrated")
        settings = {"net": net, "rung": "ours", "images": 1}
        yield options.once("large", settings, _run, net, say)


def _run(net: str, say: Say) -> Row:
    graph = read_net(net)
    pictures = blurred_pictures(graph, PICTURES)
    graph = calibrated(graph, pictures)
    found = oracle.trace(graph, pictures)
    active = {node.name: float((found[node.name] > 0).mean()) for node in graph.of(Requant)}
    classes = found[graph.output.name].argmax(axis=1).tolist()
    if min(active.values()) < ACTIVE or len(set(classes)) < PICTURES:
        raise PrivateError(f"{net} is not alive: least {min(active.values()):.2f} active, classes {classes}")
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(
            Path(folder),
            graph,
            pictures[:1],
            BenchServer("", "ours"),
            BenchClient("", "", "", progress=True),
            tell=lambda row: say(row["text"]) if row["row"] == "progress" else None,
        )
    return {
        "net": net,
        "variant": "ours",
        **summary(run),
        "least_active": min(active.values()),
        "classes": classes,
    }

"""Graph: a quantized network as a list of nodes in the order in which they run, each checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from thinwire_private.errors import ModelError
from thinwire_private.net.nodes import (
    Add,
    Conv,
    GraphNode,
    Input,
    Linear,
    MaxPool,
    Output,
    Requant,
    SumPool,
    Value,
    Weighted,
    out_size,
)
from thinwire_private.net.widths import WEIGHTS, WORST, extremes, fit_accumulators

MAX_BITS = 62  # an accumulator and its rounding term fit an int64
MAX_SIZE = 1 << 28  # integers in one value
Kind = TypeVar("Kind", bound=GraphNode)


def check_node(node: GraphNode, before: Mapping[str, GraphNode]) -> None:
    """Raise ModelError unless the node reads what earlier nodes give and its integers fit its widths."""
    if len(node.sources) != len(node.taken) or len(node.sources) != num_sources(node):
        raise ModelError(f"node {node.name!r} reads {len(node.sources)} nodes: it takes {num_sources(node)}")
    for source, taken in zip(node.sources, node.taken, strict=True):
        if source not in before:
            raise ModelError(f"node {node.name!r} reads {source!r}, which does not stand before it")
        if before[source].value != taken:
            given = describe_value(before[source].value)
            raise ModelError(
                f"node {node.name!r} expects {describe_value(taken)} from {source!r}, which gives {given}"
            )
    check_value(node)
    match node:
        case Weighted():
            check_weights(node)
        case Requant() if not 0 <= node.shift < node.taken[0].bits:
            raise ModelError(
                f"node {node.name!r} shifts {node.taken[0].bits} bits by {node.shift}: "
                "a shift must be at least 0 and leave a bit"
            )
        case Requant() if not node.relu and node.taken[0].signed:
            raise ModelError(f"node {node.name!r} re-quantizes signed numbers without a ReLU: add the ReLU")
        case Add() if min(node.shifts) != 0 or max(node.shifts) >= MAX_BITS:
            raise ModelError(f"node {node.name!r} shifts by {node.shifts}: one must be 0, none negative")
        case _:
            pass


def check_value(node: GraphNode) -> None:
    """Raise ModelError unless the node's output has the shape and the sign that follow from its inputs."""
    value = node.value
    if not 1 <= value.bits <= MAX_BITS:
        raise ModelError(
            f"node {node.name!r} gives {describe_value(value)}: widths go from 1 to {MAX_BITS} bits"
        )
    if min(value.shape, default=0) < 1 or value.size > MAX_SIZE:
        raise ModelError(
            f"node {node.name!r} gives {describe_value(value)}: a shape has at least one number and at most "
            f"{MAX_SIZE:,}; use smaller pictures or fewer channels"
        )
    if (shape := expected_shape(node)) != value.shape:
        raise ModelError(
            f"node {node.name!r} gives {describe_value(value)}: its inputs make the shape {shape}"
        )
    if value.signed != expected_sign(node):
        raise ModelError(
            f"node {node.name!r} gives {describe_value(value)}: the other sign follows from its inputs"
        )


def num_sources(node: GraphNode) -> int:
    """How many nodes a node reads."""
    return {"input": 0, "add": 2}.get(node.kind, 1)


def expected_shape(node: GraphNode) -> tuple[int, ...]:
    """The shape that follows from a node's inputs."""
    shapes = [value.shape for value in node.taken]
    match node:
        case Input():
            return node.value.shape
        case Linear():
            return node.value.shape[:1]
        case Conv():
            return node.value.shape[0], *_slid(node, shapes[0], node.padding)
        case SumPool():
            return shapes[0][0], *_slid(node, shapes[0], 0)
        case MaxPool():
            return shapes[0][0], *_slid(node, shapes[0], node.padding)
        case _:
            return shapes[-1]


def _slid(node: Conv | SumPool | MaxPool, shape: tuple[int, ...], padding: int) -> tuple[int, ...]:
    if len(shape) != 3 or node.kernel < 1 or node.stride < 1 or not 0 <= padding <= node.kernel // 2:
        raise ModelError(
            f"node {node.name!r} slides a window of {node.kernel} by {node.stride}, padded by {padding}, "
            f"over the shape {shape}: it needs 3 axes, positive sizes, at most half a window of padding"
        )
    return tuple(out_size(side, node.kernel, node.stride, padding) for side in shape[1:])


def expected_sign(node: GraphNode) -> bool:
    """Whether a node gives signed numbers."""
    match node:
        case Weighted() | Add():
            return True
        case MaxPool():
            return node.taken[0].signed
        case _:
            return node.kind == "output" and node.taken[0].signed


def check_weights(layer: Weighted) -> None:
    """Raise ModelError unless weights have their shape and width and no sum can leave the accumulator."""
    if not 2 <= layer.weight_bits <= 32:
        raise ModelError(f"layer {layer.name!r} has {layer.weight_bits}-bit weights: use 2 to 32")
    if layer.taken[0].signed:
        raise ModelError(f"layer {layer.name!r} reads an accumulator: put a requant between")
    if layer.weight is None:
        return
    if layer.weight.shape != layer.weight_shape:
        raise ModelError(
            f"layer {layer.name!r} has weights of shape {layer.weight.shape}, not {layer.weight_shape}"
        )
    half = 1 << (layer.weight_bits - 1)
    if layer.weight.min() < -half or layer.weight.max() >= half:
        raise ModelError(f"layer {layer.name!r} has weights outside its {layer.weight_bits} bits")
    if layer.bias is not None and layer.bias.shape != layer.weight_shape[:1]:
        raise ModelError(f"layer {layer.name!r} has a bias of shape {layer.bias.shape}: give one per output")
    low, high = extremes(layer)
    if low < layer.value.low or high > layer.value.high:
        raise ModelError(
            f"layer {layer.name!r} can reach {low if low < layer.value.low else high}, which overflows its "
            f"{layer.acc_bits}-bit accumulator: export it again with wider accumulators"
        )


def describe_value(value: Value) -> str:
    """A value in words.

    >>> describe_value(Value((16, 8, 8), 6, False))
    'a 6-bit activation of shape 16x8x8'
    """
    what = "accumulator" if value.signed else "activation"
    return f"a {value.bits}-bit {what} of shape {'x'.join(map(str, value.shape))}"


__all__ = ["WEIGHTS", "WORST", "Graph"]


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: nodes in topological order, the first an Input, the last an Output.

    Public to both parties: everything but weights and biases. `acc_rule` says where the accumulator widths
    come from: "worst" (they tell nothing) or "weights" (a declared leak).
    """

    name: str
    nodes: tuple[GraphNode, ...]
    acc_rule: str = WORST

    def __post_init__(self) -> None:
        if self.acc_rule not in (WORST, WEIGHTS):
            raise ModelError(f'accumulator rule {self.acc_rule!r} is unknown: use "{WORST}" or "{WEIGHTS}"')
        seen: dict[str, GraphNode] = {}
        for node in self.nodes:
            if node.name in seen:
                raise ModelError(f"two nodes are called {node.name!r}: names must differ")
            check_node(node, seen)
            seen[node.name] = node
        kinds = [node.kind for node in self.nodes]
        ends = kinds[:1] == ["input"] and kinds[-1:] == ["output"]
        if not ends or kinds.count("input") != 1 or kinds.count("output") != 1:
            raise ModelError("a graph has one input, its first node, and one output, its last")
        self._check_widths()

    def _check_widths(self) -> None:
        """Raise ModelError if a sum can leave its accumulator."""
        if self.acc_rule == WEIGHTS and not self.has_weights:
            return  # a client's view: the server, who has the weights, has checked them
        for node, needed in zip(self.nodes, fit_accumulators(self.nodes, self.acc_rule), strict=True):
            if node.value.bits < needed.value.bits:
                raise ModelError(
                    f"node {node.name!r} has {node.value.bits} bits, its sums need {needed.value.bits} "
                    "and would overflow: export the model again"
                )

    def __iter__(self) -> Iterator[GraphNode]:
        return iter(self.nodes)

    def __getitem__(self, name: str) -> GraphNode:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, GraphNode]:
        return {node.name: node for node in self.nodes}

    @property
    def input(self) -> Input:
        """The client's picture."""
        return self.of(Input)[0]

    @property
    def output(self) -> Output:
        """What the client learns."""
        return self.of(Output)[0]

    @property
    def layers(self) -> tuple[Weighted, ...]:
        """The layers with weights, in order."""
        return tuple(node for node in self.nodes if isinstance(node, Weighted))

    @property
    def macs(self) -> int:
        """Multiplications for one picture."""
        return sum(layer.macs for layer in self.layers)

    @property
    def relus(self) -> int:
        """ReLUs for one picture."""
        return sum(node.value.size for node in self.of(Requant) if node.relu)

    @property
    def has_weights(self) -> bool:
        """Whether it can be run; without weights it is the client's view, or a network for costs only."""
        return all(layer.weight is not None for layer in self.layers)

    def of(self, kind: type[Kind]) -> tuple[Kind, ...]:
        """The nodes of one kind, in order."""
        return tuple(node for node in self.nodes if isinstance(node, kind))

    def map(self, change: Callable[[GraphNode], GraphNode]) -> Graph:
        """The graph with every node replaced by `change(node)`."""
        return replace(self, nodes=tuple(change(node) for node in self.nodes))

    def fit_accumulators(self, acc_rule: str = WORST) -> Graph:
        """The graph with every accumulator as narrow as the rule allows."""
        if acc_rule == WEIGHTS and not self.has_weights:
            raise ModelError('accumulator widths from weights need the weights: use the rule "worst"')
        return replace(self, nodes=fit_accumulators(self.nodes, acc_rule), acc_rule=acc_rule)

    def public(self) -> Graph:
        """What the client may see: the same graph without weights and biases."""
        bare = {layer.name: replace(layer, weight=None, bias=None) for layer in self.layers}
        return self.map(lambda node: bare.get(node.name, node))

    def fast(self) -> Graph:
        """The declared fast mode: no clamp anywhere, high bits are dropped."""
        loose = {node.name: replace(node, clamp=False) for node in self.of(Requant)}
        return self.map(lambda node: loose.get(node.name, node))

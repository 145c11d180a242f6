"""Checks of one node against the nodes before it: shapes, signs, widths, weights in range."""

from __future__ import annotations

from collections.abc import Mapping

from thinwire_private.errors import ModelError
from thinwire_private.net.columns import out_size
from thinwire_private.net.nodes import Add, Conv, Input, Linear, MaxPool, Node, Requant, SumPool, Weighted
from thinwire_private.net.value import Value
from thinwire_private.net.widths import extremes

MAX_BITS = 62  # an accumulator and its rounding term fit an int64
MAX_SIZE = 1 << 28  # integers in one value


def check_node(node: Node, before: Mapping[str, Node]) -> None:
    """Raise ModelError unless the node reads what earlier nodes give and its integers fit its widths."""
    if len(node.sources) != len(node.taken) or len(node.sources) != num_sources(node):
        raise ModelError(f"node {node.name!r} reads {len(node.sources)} nodes: it takes {num_sources(node)}")
    for source, taken in zip(node.sources, node.taken, strict=True):
        if source not in before:
            raise ModelError(f"node {node.name!r} reads {source!r}, which does not stand before it")
        if before[source].value != taken:
            given = told(before[source].value)
            raise ModelError(f"node {node.name!r} expects {told(taken)} from {source!r}, which gives {given}")
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


def check_value(node: Node) -> None:
    """Raise ModelError unless the node's output has the shape and the sign that follow from its inputs."""
    value = node.value
    if not 1 <= value.bits <= MAX_BITS or min(value.shape, default=0) < 1 or value.size > MAX_SIZE:
        raise ModelError(f"node {node.name!r} gives {told(value)}: widths go from 1 to {MAX_BITS} bits")
    if (shape := expected_shape(node)) != value.shape:
        raise ModelError(f"node {node.name!r} gives {told(value)}: its inputs make the shape {shape}")
    if value.signed != expected_sign(node):
        raise ModelError(f"node {node.name!r} gives {told(value)}: the other sign follows from its inputs")


def num_sources(node: Node) -> int:
    """How many nodes a node reads."""
    return {"input": 0, "add": 2}.get(node.kind, 1)


def expected_shape(node: Node) -> tuple[int, ...]:
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


def expected_sign(node: Node) -> bool:
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


def told(value: Value) -> str:
    """A value in words.

    >>> told(Value((16, 8, 8), 6, False))
    'a 6-bit activation of shape 16x8x8'
    """
    what = "accumulator" if value.signed else "activation"
    return f"a {value.bits}-bit {what} of shape {'x'.join(map(str, value.shape))}"

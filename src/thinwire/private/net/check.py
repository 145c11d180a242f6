"""Checks of one node against the nodes before it: shapes, widths, weights in range."""

from __future__ import annotations

from collections.abc import Mapping

from thinwire.private.errors import ModelError
from thinwire.private.net.nodes import Add, Node, Requant, Weighted
from thinwire.private.net.value import Value

MAX_BITS = 62  # an accumulator and its rounding term fit an int64


def check_node(node: Node, before: Mapping[str, Node]) -> None:
    """Raise ModelError unless the node reads what earlier nodes give and its integers fit its widths."""
    if len(node.sources) != len(node.taken):
        raise ModelError(f"node {node.name!r} names {len(node.sources)} sources and {len(node.taken)} values")
    for source, taken in zip(node.sources, node.taken, strict=True):
        if source not in before:
            raise ModelError(f"node {node.name!r} reads {source!r}, which does not stand before it")
        if before[source].value != taken:
            given = told(before[source].value)
            raise ModelError(f"node {node.name!r} expects {told(taken)} from {source!r}, which gives {given}")
    if not 1 <= node.value.bits <= MAX_BITS or min(node.value.shape, default=0) < 1:
        raise ModelError(f"node {node.name!r} gives {told(node.value)}: widths go from 1 to {MAX_BITS} bits")
    match node:
        case Weighted():
            check_weights(node)
        case Requant():
            if not 0 <= node.shift < node.taken[0].bits:
                raise ModelError(
                    f"node {node.name!r} shifts {node.taken[0].bits} bits by {node.shift}: "
                    "a shift must be at least 0 and leave a bit"
                )
            if not node.relu and node.taken[0].signed:
                raise ModelError(
                    f"node {node.name!r} re-quantizes signed numbers without a ReLU: add the ReLU"
                )
        case Add():
            if min(node.shifts) != 0 or max(node.shifts) >= MAX_BITS:
                raise ModelError(f"node {node.name!r} shifts by {node.shifts}: one must be 0, none negative")
        case _:
            pass


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
        raise ModelError(
            f"layer {layer.name!r} has a bias of shape {layer.bias.shape}, one per output is needed"
        )
    low, high = extremes(layer)
    if low < layer.value.low or high > layer.value.high:
        raise ModelError(
            f"layer {layer.name!r} can reach {low if low < layer.value.low else high}, which overflows its "
            f"{layer.acc_bits}-bit accumulator: export it again with wider accumulators"
        )


def extremes(layer: Weighted) -> tuple[int, int]:
    """The smallest and the largest sum that these very weights and biases can give for any input."""
    weight, top = layer.matrix(), layer.taken[0].high
    bias = 0 if layer.bias is None else layer.bias
    high = (weight.clip(min=0).sum(axis=1) * top + bias).max()
    low = (weight.clip(max=0).sum(axis=1) * top + bias).min()
    return int(min(low, 0)), int(max(high, 0))


def told(value: Value) -> str:
    """A value in words.

    >>> told(Value((16, 8, 8), 6, False))
    'a 6-bit activation of shape 16x8x8'
    """
    what = "accumulator" if value.signed else "activation"
    return f"a {value.bits}-bit {what} of shape {'x'.join(map(str, value.shape))}"

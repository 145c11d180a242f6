"""Accumulator widths: how many bits no sum can leave, from public widths alone or from the weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from thinwire_private.net.nodes import Add, MaxPool, Node, Requant, SumPool, Weighted
from thinwire_private.net.value import Value, accumulator, activation

Range = tuple[int, int]

WORST = "worst"  # accumulator widths from the public widths alone
WEIGHTS = "weights"  # narrower ones from the weights: leaks about log2 of a weight norm per layer


def worst_case(depth: int, weight_bits: int, in_bits: int) -> Range:
    """The range of a sum of `depth` products and a bias, whatever the weights are.

    The products reach P = d2 * 2^(l_w-1) * (2^l_x - 1) below 0, d2 * (2^l_x - 1) less above it. The bias gets
    an eighth: the range is that of M = 9/8 * d2 * 2^(l_w-1) * 2^l_x, so l_acc = 1 + ceil(log2 M), which is
    l_w + l_x + ceil(log2 d2) unless d2 is close below a power of two or is one.
    """
    most = (9 * depth << (weight_bits - 1 + in_bits)) >> 3
    return -most, most - 1 - depth * ((1 << in_bits) - 1)


def bias_limit(layer: Weighted) -> int:
    """The largest |bias| that the worst-case accumulator of this layer has room for."""
    _, depth, _ = layer.dims
    low, _ = worst_case(depth, layer.weight_bits, layer.in_bits)
    return -low - 1 - (depth * ((1 << layer.in_bits) - 1) << (layer.weight_bits - 1))


def extremes(layer: Weighted) -> tuple[int, int]:
    """The smallest and the largest sum that these very weights and biases can give for any input."""
    weight, top = layer.matrix(), layer.taken[0].high
    bias = 0 if layer.bias is None else layer.bias
    high = (weight.clip(min=0).sum(axis=1) * top + bias).max()
    low = (weight.clip(max=0).sum(axis=1) * top + bias).min()
    return int(min(low, 0)), int(max(high, 0))


def signed_bits(low: int, high: int) -> int:
    """Bits of a two's complement number that holds low..high.

    >>> signed_bits(-8, 7), signed_bits(-9, 7), signed_bits(0, 8)
    (4, 5, 5)
    """
    return 1 + max((-low - 1).bit_length() if low < 0 else 0, high.bit_length())


def settled(nodes: Sequence[Node], rule: str = WORST) -> tuple[Node, ...]:
    """Nodes in order, with accumulators as narrow as the rule allows.

    1. forward: the range of every node's sums;  2. backward: a sum that is added to another one lives in the
    ring of the total (less the bits it is shifted by), for shares cannot be widened for free, and a sum that
    is re-quantized has room for the rounding term 2^(s-1);  3. forward: rebuild the nodes.
    """
    ranges: dict[str, Range] = {}
    for node in nodes:
        ranges[node.name] = _range(node, ranges, rule)
    bits: dict[str, int] = {}
    for node in reversed(nodes):
        low, high = ranges[node.name]
        needed = signed_bits(low, high) if node.value.signed else high.bit_length()
        bits[node.name] = max(needed, bits.get(node.name, 0))
        for source, asked in _asked(node, bits[node.name], ranges).items():
            bits[source] = max(asked, bits.get(source, 0))
    values: dict[str, Value] = {}
    made = []
    for node in nodes:
        make = accumulator if node.value.signed else activation
        values[node.name] = make(node.value.shape, bits[node.name])
        taken = tuple(values[source] for source in node.sources)
        made.append(replace(node, taken=taken, value=values[node.name]))
    return tuple(made)


def _range(node: Node, ranges: Mapping[str, Range], rule: str) -> Range:
    given = [ranges[source] for source in node.sources]
    match node:
        case Weighted():
            return (
                extremes(node)
                if rule == WEIGHTS
                else worst_case(node.dims[1], node.weight_bits, node.in_bits)
            )
        case Add():
            (low0, high0), (low1, high1) = given
            first, second = node.shifts
            return (low0 << first) + (low1 << second), (high0 << first) + (high1 << second)
        case SumPool():
            return 0, given[0][1] * node.kernel**2
        case MaxPool():
            return given[0]
        case _ if node.kind == "output":
            return given[0]
        case _:
            return 0, node.value.high


def _asked(node: Node, bits: int, ranges: Mapping[str, Range]) -> dict[str, int]:
    """The width that a node needs its sources in."""
    if isinstance(node, Requant) and node.taken[0].signed:
        low, high = ranges[node.sources[0]]
        return {node.sources[0]: signed_bits(low, high + ((1 << node.shift) >> 1))}
    if not node.value.signed:
        return {}
    shifts = node.shifts if isinstance(node, Add) else (0,) * len(node.sources)
    pairs = zip(node.sources, node.taken, shifts, strict=True)
    return {source: bits - shift for source, taken, shift in pairs if taken.signed}

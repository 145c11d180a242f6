"""Widths in bits: of weights and activations, as asked for; of accumulators, as they follow from them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from thinwire_private.errors import ModelError
from thinwire_private.net.nodes import (
    Add,
    GraphNode,
    MaxPool,
    Requant,
    SumPool,
    Value,
    Weighted,
    accumulator,
    activation,
)

ENDS_BITS = 8  # the first and the last layer are never narrower
Range = tuple[int, int]
WORST = "worst"  # accumulator widths from the public widths alone
WEIGHTS = "weights"  # narrower ones from the weights: leaks about log2 of a weight norm per layer


@dataclass(frozen=True)
class Bits:
    """Widths by rule: `weight` and `activation` in the middle, `ends` at both ends, exceptions by layer name.

    `weights` maps layer names to their weight bits, `activations` maps requant names to theirs. `residual` is
    the width in which shortcuts are kept; None: they share the block's activation.
    """

    weight: int = 8
    activation: int = 8
    ends: int = ENDS_BITS
    residual: int | None = None
    weights: Mapping[str, int] = field(default_factory=dict)
    activations: Mapping[str, int] = field(default_factory=dict)

    def of_weight(self, layer: str, end: bool) -> int:
        """l_w of a layer."""
        return self.weights.get(layer, self.ends if end else self.weight)

    def of_activation(self, requant: str, end: bool) -> int:
        """l_x that a requant gives."""
        return self.activations.get(requant, self.ends if end else self.activation)

    def with_list(self, layers: Sequence[str], widths: Sequence[int]) -> Bits:
        """The same with weight bits given as a list over the middle layers, in order."""
        if len(layers) != len(widths):
            raise ModelError(
                f"{len(widths)} weight widths for {len(layers)} middle layers: give one for each"
            )
        return replace(self, weights={**self.weights, **dict(zip(layers, widths, strict=True))})


def read_bits(text: str) -> Bits:
    """Widths from a text such as W4A6, W16A16 or W3A6R8 (shortcuts in 8 bits).

    The ends have 8 bits, or more where the rest has more.

    >>> read_bits("W4A6").weight, read_bits("w16a16").ends, read_bits("W3A6R8").residual
    (4, 16, 8)
    """
    match = re.fullmatch(r"W(\d+)A(\d+)(?:R(\d+))?", text.strip().upper())
    widths = [int(group) for group in match.groups() if group] if match else []
    if not match or not all(1 <= width <= 24 for width in widths) or widths[0] < 2:
        raise ModelError(f'bits "{text}" cannot be read: write W4A6 or W4A6R8, weights with 2 to 24 bits')
    weight, activation, *residual = widths
    ends = max(ENDS_BITS, weight, activation)
    return Bits(weight, activation, ends, residual[0] if residual else None)


def bits_to_facts(bits: Bits) -> dict[str, Any]:
    """Widths as plain JSON."""
    return asdict(bits)


def bits_from_facts(facts: Any) -> Bits:
    """The widths that `bits_to_facts` gave."""
    try:
        bits = Bits(**facts)
        widths = [bits.weight, bits.activation, bits.ends, *bits.weights.values(), *bits.activations.values()]
        if not all(type(width) is int and 1 <= width <= 24 for width in widths):
            raise ModelError("bit widths must be whole numbers from 1 to 24")
    except (TypeError, AttributeError) as error:
        raise ModelError(
            f"these are not bit widths ({error}): make them with `thinwire private search`"
        ) from error
    return bits


def open_bits(text: str) -> Bits:
    """Widths from a text such as W4A6, or from a file that `thinwire private search --out` wrote."""
    path = Path(text)
    if path.suffix != ".json":
        return read_bits(text)
    try:
        return bits_from_facts(json.loads(path.read_text())["bits"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"{path} does not hold bit widths ({error}): make it with `thinwire private search`"
        ) from error


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


def fit_accumulators(nodes: Sequence[GraphNode], rule: str = WORST) -> tuple[GraphNode, ...]:
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


def _range(node: GraphNode, ranges: Mapping[str, Range], rule: str) -> Range:
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


def _asked(node: GraphNode, bits: int, ranges: Mapping[str, Range]) -> dict[str, int]:
    """The width that a node needs its sources in."""
    if isinstance(node, Requant) and node.taken[0].signed:
        low, high = ranges[node.sources[0]]
        return {node.sources[0]: signed_bits(low, high + ((1 << node.shift) >> 1))}
    if not node.value.signed:
        return {}
    shifts = node.shifts if isinstance(node, Add) else (0,) * len(node.sources)
    pairs = zip(node.sources, node.taken, shifts, strict=True)
    return {source: bits - shift for source, taken, shift in pairs if taken.signed}

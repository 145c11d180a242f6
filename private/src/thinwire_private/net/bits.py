"""Bits: how wide the weights and activations of a network are, layer by layer."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from thinwire_private.errors import ModelError

ENDS_BITS = 8  # the first and the last layer are never narrower


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
    """The widths that `bits_to_facts` told of."""
    try:
        bits = Bits(**facts)
        widths = [bits.weight, bits.activation, bits.ends, *bits.weights.values(), *bits.activations.values()]
        if not all(type(width) is int and 1 <= width <= 24 for width in widths):
            raise ModelError("bit widths must be whole numbers from 1 to 24")
    except (TypeError, AttributeError) as error:
        raise ModelError(
            f"these are no bit widths ({error}): make them with `thinwire private search`"
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
            f"{path} holds no bit widths ({error}): make it with `thinwire private search`"
        ) from error

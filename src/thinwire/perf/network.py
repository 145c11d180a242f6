"""A network as a table: the shapes of its tensors, how often each weight is used, a usual batch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from thinwire.errors import LabError

EMBEDDING, LAST = "embedding", "last"  # kinds of layers that policies keep dense


@dataclass(frozen=True)
class Layer:
    """One tensor. `uses`: multiplications that each of its elements takes part in, per example.

    >>> Layer("conv.weight", (64, 3, 7, 7), uses=112 * 112).macs
    118013952
    """

    name: str
    shape: tuple[int, ...]
    uses: int = 0
    kind: str = ""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def macs(self) -> int:
        """Multiply-and-adds of a forward pass of one example."""
        return self.numel * self.uses


@dataclass(frozen=True)
class Network:
    """Layers in the order of the forward pass, and the defaults of a forecast.

    `utilisation` is the share of a device's peak that training such a network is assumed to reach; it is
    used where nobody has measured examples per second.
    """

    name: str
    layers: tuple[Layer, ...]
    batch: int = 32  # examples a worker and step
    example: str = "image"
    utilisation: float = 0.25
    source: str = ""

    def __post_init__(self) -> None:
        if not self.layers:
            raise LabError(f"network {self.name} has no tensors: there is nothing to send")
        if self.batch < 1:
            raise LabError(f"batch={self.batch}: a worker takes at least one example a step")

    @cached_property
    def numel(self) -> int:
        return sum(layer.numel for layer in self.layers)

    @cached_property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    def with_batch(self, batch: int | None) -> Network:
        return self if batch is None else replace(self, batch=batch)


def joined(*tables: Iterable[Layer]) -> tuple[Layer, ...]:
    """Several tables one behind the other."""
    return tuple(layer for table in tables for layer in table)


def weighted(name: str, shape: tuple[int, ...], uses: int, kind: str = "", bias: bool = True) -> list[Layer]:
    """A weight, and a bias for each of its rows."""
    layers = [Layer(f"{name}.weight", shape, uses, kind)]
    return [*layers, Layer(f"{name}.bias", (shape[0],), 0, kind)] if bias else layers


def norm(name: str, width: int, bias: bool = True) -> list[Layer]:
    """Scale and shift of a normalisation."""
    return [Layer(f"{name}.{what}", (width,)) for what in ("weight", "bias")[: 1 + bias]]

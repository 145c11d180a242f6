"""Rungs: the steps of the ladder from SiRNN to ours: bit widths, protocol switches, and where widths come from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from thinwire.errors import PrivateError
from thinwire.private.net.bits import read_bits
from thinwire.private.net.draw import with_random_weights
from thinwire.private.net.graph import WEIGHTS, Graph
from thinwire.private.net.twq import read_twq
from thinwire.private.net.widths import settle
from thinwire.private.net.zoo import RESNET32_LIST, build, listed

MIXED = "mixed"  # the authors' list for ResNet-32, a searched list in a model file for the others


@dataclass(frozen=True)
class Rung:
    """A name, the bits (W4A6, or mixed), the variant of the protocols, and two properties of the graph."""

    name: str
    bits: str
    variant: str
    tight: bool = False  # accumulator widths from the weights: a declared leak
    fast: bool = False  # no clamp
    computed: bool = False  # predicted only, never run here

    def graph(self, net: str, models: Path | None) -> Graph:
        """The network with weights: trained ones if there is a file NET-BITS.twq, else random ones."""
        graph = self._base(net, models)
        graph = settle(graph, WEIGHTS) if self.tight else graph
        return graph.fast() if self.fast else graph

    def _base(self, net: str, models: Path | None) -> Graph:
        file = None if models is None else models / f"{net}-{self.bits}.twq"
        if file is not None and file.exists():
            return read_twq(file).graph
        if self.bits != MIXED:
            return with_random_weights(build(net, read_bits(self.bits)))
        if net != "resnet32":
            raise PrivateError(
                f"the mixed widths of {net} come from a search: put {net}-{MIXED}.twq into --models "
                "(thinwire private search makes it)"
            )
        return with_random_weights(listed(net, RESNET32_LIST, read_bits("W4A6")))


_RUNGS = (
    Rung("B0", "W16A16", "B0"),
    Rung("B0'", "W16A16", "B0'"),
    Rung("W8A8", "W8A8", "B0"),
    Rung("B1", "W4A6", "B1"),
    Rung("B1'", "W4A6", "B1'"),
    Rung("S1", "W4A6", "S1"),
    Rung("S2", "W4A6", "S2"),
    Rung("S3", "W4A6", "S3"),
    Rung("S4", "W4A6", "S4"),
    Rung("S5", "W4A6", "S5", tight=True),
    Rung("S6", MIXED, "S6"),
    Rung("S6-fast", MIXED, "S6", fast=True),
    Rung("S6-tight", MIXED, "S6", tight=True),
    Rung("S6-ss8", MIXED, "S6-ss8"),
    Rung("ours", MIXED, "ours"),
)
RUNGS: Mapping[str, Rung] = MappingProxyType({rung.name: rung for rung in _RUNGS})


def rungs_named(names: tuple[str, ...] | None) -> list[Rung]:
    """These rungs, or all of them."""
    unknown = sorted(set(names or ()) - set(RUNGS))
    if unknown:
        raise PrivateError(f"unknown rung {unknown[0]!r}: choose from {', '.join(RUNGS)}")
    return [RUNGS[name] for name in (names or RUNGS)]

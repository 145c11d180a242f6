"""Rungs: the ladder from SiRNN to ours: a variant of the protocols, and a network at its bit widths."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import PrivateError
from thinwire_private.net.graph import Graph
from thinwire_private.net.twq import read_twq
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import LIST, LISTS, build, read_net, with_random_weights
from thinwire_private.variant import VARIANTS, Variant, variant


@dataclass(frozen=True)
class Rung:
    """A variant, and the folder in which trained models may be."""

    variant: Variant
    models: Path | None = None

    @property
    def name(self) -> str:
        """As the ladder calls it."""
        return self.variant.name

    def graph(self, net: str) -> Graph:
        """The network with weights: trained ones if there is a file NET-BITS.twq, else random ones."""
        bits = self.variant.bits
        file = None if self.models is None else self.models / f"{net}-{bits}.twq"
        if file is not None and file.exists():
            return read_twq(file).graph
        if bits != LIST:
            return with_random_weights(build(net, read_bits(bits)))
        if net not in LISTS:
            raise PrivateError(
                f"the mixed widths of {net} come from a search: put {net}-{LIST}.twq into --models "
                "(thinwire private search makes it)"
            )
        return with_random_weights(read_net(f"{net}:{LIST}"))


def rungs_named(names: tuple[str, ...] | None, models: Path | None = None) -> list[Rung]:
    """These rungs, or all of them."""
    return [Rung(variant(name), models) for name in (names or VARIANTS)]

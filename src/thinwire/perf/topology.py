"""A topology: nodes with workers (GPUs) in them, a link between the nodes and one inside each."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thinwire.errors import LabError
from thinwire.perf.link import Link


@dataclass(frozen=True)
class Topology:
    """`nodes` times `gpus` workers; the workers of a node share its one connection to the others.

    >>> from thinwire.perf.link import link_named
    >>> Topology(128, 4, link_named("1gbit"), link_named("pcie")).workers
    512
    """

    nodes: int
    gpus: int
    inter: Link  # between nodes: what one node sends, all its workers together
    intra: Link  # inside a node: what one worker sends

    def __post_init__(self) -> None:
        for what, number in (("nodes", self.nodes), ("gpus", self.gpus)):
            if number < 1:
                raise LabError(f"{what}={number}: a cluster has at least one node with one GPU")

    @property
    def workers(self) -> int:
        return self.nodes * self.gpus

    @property
    def leaders(self) -> Topology:
        """One worker of every node."""
        return replace(self, gpus=1)

    @property
    def inside(self) -> Topology:
        """The workers of one node."""
        return replace(self, nodes=1)

    @property
    def link(self) -> Link:
        """On which collectives of all its workers are measured: between nodes, if there are several."""
        return self.inter if self.nodes > 1 else self.intra

    @property
    def busy(self) -> Topology:
        """As its workers see it while all of them compute."""
        return replace(self, inter=self.inter.busy, intra=self.intra.busy)

    def with_nodes(self, nodes: int) -> Topology:
        return replace(self, nodes=nodes)

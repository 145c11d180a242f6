"""Graph: a quantized network as a list of nodes in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from thinwire_private.errors import ModelError
from thinwire_private.net.check import check_node
from thinwire_private.net.nodes import Input, Node, Output, Requant, Weighted
from thinwire_private.net.widths import WEIGHTS, WORST, settled

__all__ = ["WEIGHTS", "WORST", "Graph"]

Kind = TypeVar("Kind", bound=Node)


@dataclass(frozen=True, eq=False)
class Graph:
    """A network: nodes in topological order, the first an Input, the last an Output.

    Public to both parties: everything but weights and biases. `acc_rule` says where the accumulator widths
    come from: "worst" (they tell nothing) or "weights" (a declared leak).
    """

    name: str
    nodes: tuple[Node, ...]
    acc_rule: str = WORST

    def __post_init__(self) -> None:
        if self.acc_rule not in (WORST, WEIGHTS):
            raise ModelError(f'accumulator rule {self.acc_rule!r} is unknown: use "{WORST}" or "{WEIGHTS}"')
        seen: dict[str, Node] = {}
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
        for node, needed in zip(self.nodes, settled(self.nodes, self.acc_rule), strict=True):
            if node.value.bits < needed.value.bits:
                raise ModelError(
                    f"node {node.name!r} has {node.value.bits} bits, its sums need {needed.value.bits} "
                    "and would overflow: export the model again"
                )

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def __getitem__(self, name: str) -> Node:
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Node]:
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

    def map(self, change: Callable[[Node], Node]) -> Graph:
        """The graph with every node replaced by `change(node)`."""
        return replace(self, nodes=tuple(change(node) for node in self.nodes))

    def settle(self, acc_rule: str = WORST) -> Graph:
        """The graph with every accumulator as narrow as the rule allows."""
        if acc_rule == WEIGHTS and not self.has_weights:
            raise ModelError('accumulator widths from weights need the weights: use the rule "worst"')
        return replace(self, nodes=settled(self.nodes, acc_rule), acc_rule=acc_rule)

    def public(self) -> Graph:
        """What the client may see: the same graph without weights and biases."""
        bare = {layer.name: replace(layer, weight=None, bias=None) for layer in self.layers}
        return self.map(lambda node: bare.get(node.name, node))

    def fast(self) -> Graph:
        """The declared fast mode: no clamp anywhere, high bits are dropped."""
        loose = {node.name: replace(node, clamp=False) for node in self.of(Requant)}
        return self.map(lambda node: loose.get(node.name, node))

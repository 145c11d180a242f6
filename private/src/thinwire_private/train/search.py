"""Search: bit widths per layer by an integer programme over the exact byte model.

    minimize    sum_i Omega_i(l_w, l_x) + sum_r Omega_r(l_x)
    subject to  sum of bytes <= budget, one (l_w, l_x) per layer, layers that read the same activation
                agree on l_x

over layers i and requants r, the latter counting where a sum or a pool reads them too.
The bytes of a network are T(base) + sum_r c_r(l_x) + sum_i c_i(l_w, l_x) up to interactions (neighbours share
the width of a residual sum), each c being an exact difference of the byte model. What interactions add is
measured on the solution, taken off the budget, and the programme is solved again until the exact total fits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from thinwire_private.compiler import compile_graph
from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Requant
from thinwire_private.net.widths import Bits
from thinwire_private.step import OFFLINE, ONLINE
from thinwire_private.train.sensitivity import Choice, Omega, WidthOptions
from thinwire_private.variant import variant

Draw = Callable[[Bits], Graph]
Cost = Callable[[Graph], int]
ROUNDS = 12
PROTOCOLS = "ours"


def picture_bytes(graph: Graph, protocols: str = PROTOCOLS) -> int:
    """Bytes for one picture, both directions, offline and online; one-time set-up is not in it."""
    return compile_graph(graph, variant(protocols)).total(OFFLINE, ONLINE).total_bytes


@dataclass(frozen=True)
class Space:
    """What may be chosen: weight bits and activation bits of every layer that is not fixed."""

    draw: Draw
    base: Bits
    weights: tuple[int, ...]
    activations: tuple[int, ...]

    @cached_property
    def graph(self) -> Graph:
        """The network at its base widths."""
        return self.draw(self.base)

    @cached_property
    def layers(self) -> tuple[str, ...]:
        """The layers whose widths are searched: all but the first and the last."""
        return tuple(layer.name for layer in self.graph.layers[1:-1])

    @cached_property
    def reads(self) -> dict[str, str]:
        """For each of these layers, the requant that gives its input."""
        return {name: self.graph[name].sources[0] for name in self.layers}

    @cached_property
    def requants(self) -> tuple[str, ...]:
        """The requants whose widths are searched: all but the one that the last layer reads."""
        last = self.graph.layers[-1].sources[0]
        return tuple(
            node.name for node in self.graph.of(Requant) if node.name != last and node.name in self._wide
        )

    @cached_property
    def _wide(self) -> set[str]:
        """Requants whose width is the rule's: not an end's, not a shortcut's."""
        raised = self.draw(replace(self.base, activation=self.base.activation + 1))
        pairs = zip(self.graph, raised, strict=True)
        return {node.name for node, other in pairs if node.kind == "requant" and node.value != other.value}

    @cached_property
    def pooled(self) -> tuple[str, ...]:
        """Those of them that something else than a searched layer reads: a residual sum, a pool."""
        others = [node for node in self.graph if node.name not in self.layers]
        read = {source for node in others for source in node.sources}
        return tuple(name for name in self.requants if name in read)

    @property
    def asked(self) -> WidthOptions:
        """Every (l_w, l_x) of every layer, every l_x of the requants that are pooled or added."""
        pairs = [(weight, activation) for weight in self.weights for activation in self.activations]
        return WidthOptions(dict.fromkeys(self.layers, pairs), dict.fromkeys(self.pooled, self.activations))

    def bits(self, weights: Mapping[str, int], activations: Mapping[str, int]) -> Bits:
        """The base widths with some of them changed."""
        return replace(
            self.base,
            weights={**self.base.weights, **weights},
            activations={**self.base.activations, **activations},
        )


@dataclass(frozen=True)
class Found:
    """The widths found, what they cost exactly, and the sum of sensitivities."""

    bits: Bits
    num_bytes: int
    omega: float


def search(space: Space, omega: Omega, cost: Cost, budget: int, drawn: Draw | None = None) -> Found:
    """The widths of least total sensitivity whose exact cost is within the budget.

    `drawn` gives the graph whose bytes count, with the shifts that its weights lead to; default: the sketch.
    """
    drawn = drawn or space.draw
    prices = _Prices(space, cost)
    allowed = budget
    for _ in range(ROUNDS):
        answer = _solve(space, omega, prices, allowed)
        if answer is None:
            break
        chosen, widths = answer
        bits = space.bits(
            {name: weight for name, (weight, _) in chosen.items()},
            widths,
        )
        total = cost(drawn(bits))
        if total <= budget:
            suffered = sum(omega.layers[name][choice] for name, choice in chosen.items())
            suffered += sum(omega.requants[name][widths[name]] for name in space.pooled)
            return Found(bits, total, suffered)
        allowed -= total - budget
    least = space.bits(
        dict.fromkeys(space.layers, min(space.weights)),
        dict.fromkeys(space.requants, min(space.activations)),
    )
    raise ModelError(
        f"no widths of {space.graph.name!r} fit a budget of {budget / 1e6:.2f} MB: the narrowest ones need "
        f"{cost(drawn(least)) / 1e6:.2f} MB"
    )


class _Prices:
    """Exact differences of the byte model, each taken once."""

    def __init__(self, space: Space, cost: Cost) -> None:
        self.base = cost(space.graph)
        self.requant: dict[tuple[str, int], int] = {}
        self.layer: dict[tuple[str, Choice], int] = {}
        for name in space.requants:
            for in_bits in space.activations:
                changed = cost(space.draw(space.bits({}, {name: in_bits})))
                self.requant[name, in_bits] = changed - self.base
        for name, choices in space.asked.layers.items():
            for weight_bits, in_bits in choices:
                read = space.reads[name]
                changed = cost(space.draw(space.bits({name: weight_bits}, {read: in_bits})))
                at_read = self.base + self.requant[read, in_bits]
                self.layer[name, (weight_bits, in_bits)] = changed - at_read


def _solve(
    space: Space, omega: Omega, prices: _Prices, allowed: int
) -> tuple[dict[str, Choice], dict[str, int]] | None:
    """One integer programme; None if nothing fits."""
    from scipy.optimize import Bounds, LinearConstraint, milp

    pairs = [(name, choice) for name, choices in space.asked.layers.items() for choice in choices]
    reads = [(name, bits) for name in space.requants for bits in space.activations]
    keys: list[tuple[str, Choice | int]] = [*pairs, *reads]
    place = {key: index for index, key in enumerate(keys)}
    rows, lows, highs = [], [], []

    def constrain(terms: Mapping[int, float], low: float, high: float) -> None:
        row = np.zeros(len(place))
        for index, factor in terms.items():
            row[index] = factor
        rows.append(row)
        lows.append(low)
        highs.append(high)

    for read in space.requants:
        constrain({place[read, bits]: 1.0 for bits in space.activations}, 1, 1)
    for name in space.layers:
        for bits in space.activations:
            terms = {place[name, (weight, bits)]: 1.0 for weight in space.weights}
            constrain({**terms, place[space.reads[name], bits]: -1.0}, 0, 0)
    price = {place[key]: prices.layer[key] / 1e3 for key in pairs}
    price |= {place[key]: prices.requant[key] / 1e3 for key in reads}
    constrain(price, -np.inf, (allowed - prices.base) / 1e3)
    objective = np.zeros(len(place))
    for name, choice in pairs:
        objective[place[name, choice]] = omega.layers[name][choice]
    for name, bits in reads:
        objective[place[name, bits]] = omega.requants.get(name, {}).get(bits, 0.0)
    objective /= objective.max() or 1.0
    answer = milp(
        objective,
        constraints=LinearConstraint(np.array(rows), lows, highs),
        integrality=np.ones(len(place)),
        bounds=Bounds(0, 1),
    )
    if answer.x is None:
        return None
    picked = answer.x > 0.5
    return (
        {name: choice for name, choice in pairs if picked[place[name, choice]]},
        {name: bits for name, bits in reads if picked[place[name, bits]]},
    )

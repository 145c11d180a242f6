"""The helm of an auto run in a hierarchy: leaders measure and forecast, all workers know what they found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from thinwire.auto.pace import Passes
from thinwire.auto.pilot import Helm
from thinwire.exchange.engine import Engine
from thinwire.exchange.node import Node
from thinwire.hooks.helm import Call
from thinwire.plans.plan import Plan


class NodeHelm:
    """Around the helm of the leaders; every act is one of all workers, and gives the same numbers to all."""

    def __init__(
        self, inner: Helm, node: Node, engine: Engine, call: Call, plan_of: Callable[[str], Plan]
    ) -> None:
        self._inner, self._node, self._engine, self._call, self._plan_of = inner, node, engine, call, plan_of

    def adopt(self, codec: str) -> None:
        self._inner.adopt(codec)

    def steer(self, codec: str) -> None:
        plan = self._plan_of(codec)
        self._call(lambda: self._node.switch(self._engine, plan))

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """The slowest worker of a node counts, then the slowest node."""
        of_node: list[float] = self._call(lambda: self._node.largest(self._engine, numbers))
        return self._told(self._inner.agree(of_node) if self._node.leads else of_node)

    def link_s(self) -> float:
        """Of the link between leaders."""
        return self._told([self._inner.link_s() if self._node.leads else 0.0])[0]

    def forecasts(self, codecs: Sequence[str], passes: Passes) -> dict[str, float]:
        """Of the exchange between nodes: what happens inside is the same for all codecs, and not in them."""
        made = self._inner.forecasts(codecs, passes) if self._node.leads else {}
        told = self._told([made.get(codec, math.nan) for codec in codecs])
        return {codec: step_s for codec, step_s in zip(codecs, told, strict=True) if not math.isnan(step_s)}

    def _told(self, numbers: Sequence[float]) -> list[float]:
        told: list[float] = self._call(lambda: self._node.told(self._engine, numbers, aside=True))
        return told

"""A node that can be left and joined: all workers exchange, or leaders do; whichever the plan says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from thinwire.exchange.bucket import Bucket
from thinwire.exchange.engine import Engine
from thinwire.exchange.node import Alone, Node
from thinwire.exchange.shared_node import SharedNode
from thinwire.exchange.state import NotTaken
from thinwire.groups.base import Group
from thinwire.groups.hierarchy import Hierarchy
from thinwire.plans.plan import Plan


class EitherWay(Node):
    """Both ways of a hierarchy, of which one is in force: a plan with one worker in a node is the flat one.

    What is held back changes hands with the way, so that the mean over all workers stays what it was:

    flat to nodes     a leader takes the mean of what its workers held
    nodes to flat     every worker takes what its leader held
    """

    def __init__(self, hierarchy: Hierarchy, device: torch.device) -> None:
        self.everybody = hierarchy.group
        self.shared, self.leaders = SharedNode(hierarchy.node(), device), hierarchy.leaders()
        self._alone = Alone()
        self._now: Node = self._alone

    @property
    def leads(self) -> bool:
        return self._now.leads

    @property
    def bytes_sent(self) -> int:
        return self.shared.bytes_sent

    def exchange(self, engine: Engine, bucket: Bucket) -> None:
        self._now.exchange(engine, bucket)

    def end_step(self, engine: Engine) -> None:
        self._now.end_step(engine)

    def switch(self, engine: Engine, plan: Plan) -> None:
        if plan.per_node == engine.plan.per_node:
            self._now.switch(engine, plan)
            return
        engine.switch(plan, self._group(plan))
        self._now = self._way(plan)
        if self._now is self.shared:
            self.shared.take_up(engine)
        else:
            self.shared.hand_down(engine)

    def adopt(self, engine: Engine, plan: Plan) -> None:
        engine.turn_to(self._group(plan))
        self._now = self._way(plan)
        self._now.adopt(engine, plan)

    def owes(self, engine: Engine) -> bool:
        return self._now.owes(engine)

    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        return self._now.state(engine, gather)

    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        return self._now.load(engine, state, strict)

    def _way(self, plan: Plan) -> Node:
        return self.shared if plan.per_node > 1 else self._alone

    def _group(self, plan: Plan) -> Group:
        return self.leaders if plan.per_node > 1 else self.everybody

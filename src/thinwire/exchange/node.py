"""A node: what happens around an exchange inside of it; nothing, if a worker is a node by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from thinwire.exchange.bucket import Bucket
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import NotTaken, gathered_state, load_state, local_state
from thinwire.plans.plan import Plan


class Node(ABC):
    """Every worker is in one. Its leader exchanges with other leaders; all of it end with the same bits."""

    @property
    @abstractmethod
    def leads(self) -> bool:
        """Whether this worker exchanges with other nodes."""

    @property
    @abstractmethod
    def bytes_sent(self) -> int:
        """By this worker, inside of the node, in all steps."""

    @abstractmethod
    def exchange(self, engine: Engine, bucket: Bucket) -> None:
        """Replaces the gradients in a bucket by their means over all workers of all nodes."""

    @abstractmethod
    def end_step(self, engine: Engine) -> None:
        """All buckets of a step have been exchanged."""

    @abstractmethod
    def switch(self, engine: Engine, plan: Plan) -> None:
        """Another plan from the next step on, collective; what was held back joins that step's gradients."""

    @abstractmethod
    def adopt(self, engine: Engine, plan: Plan) -> None:
        """Another plan with nothing held, whose state is loaded next."""

    @abstractmethod
    def owes(self, engine: Engine) -> bool:
        """Whether something of a plan before this one is still to be sent; the same on all workers."""

    @abstractmethod
    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        """What to save of this worker, or with `gather` (collective) of all."""

    @abstractmethod
    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        """Puts it back."""


class Alone(Node):
    """A node of one worker: everything is the engine's."""

    @property
    def leads(self) -> bool:
        return True

    @property
    def bytes_sent(self) -> int:
        return 0

    def exchange(self, engine: Engine, bucket: Bucket) -> None:
        engine.exchange(bucket)

    def end_step(self, engine: Engine) -> None:
        engine.end_step()

    def switch(self, engine: Engine, plan: Plan) -> None:
        engine.switch(plan)

    def adopt(self, engine: Engine, plan: Plan) -> None:
        engine.adopt(plan)

    def owes(self, engine: Engine) -> bool:
        return bool(engine.leftover)

    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        return (gathered_state if gather else local_state)(engine)

    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        return load_state(engine, state, strict)

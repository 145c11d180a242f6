"""The course of a run: by which codec its steps go; fixed, or steered by the pilot of an auto run."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from thinwire.auto.pilot import Pilot
from thinwire.auto.qualities import DENSE
from thinwire.errors import StateError
from thinwire.exchange.bucket import Bucket
from thinwire.exchange.engine import Engine
from thinwire.exchange.node import Node
from thinwire.hooks.safeguard import RawGradients, Safeguard
from thinwire.plans.plan import Plan
from thinwire.tensors.layout import Layout


class Course(ABC):
    """Hears of every bucket and of the end of every backward pass."""

    passes: bool = False  # whether the buckets of this step go DDP's own way
    guards: ClassVar[bool] = False  # whether it may want the raw gradients of a bucket once more

    @abstractmethod
    def text(self, codec: str) -> str:
        """What a report calls the codec that the policy names."""

    @abstractmethod
    def plan(self, asked: Plan, now: Plan) -> Plan:
        """The plan to show: what was asked for, or what the engine has now."""

    @property
    @abstractmethod
    def decided(self) -> bool:
        """Whether the codec is settled."""

    @property
    @abstractmethod
    def explanation(self) -> str:
        """What was decided and why, if anything was."""

    @abstractmethod
    def bucket_ready(self, is_first: bool) -> None:
        """A bucket of a step is ready, of which nothing has been sent."""

    @abstractmethod
    def exchange(self, node: Node, engine: Engine, bucket: Bucket, raw: RawGradients) -> None:
        """Replaces the gradients in a bucket by their means over all workers."""

    @abstractmethod
    def end_backward(self) -> None:
        """The backward pass has all its means."""

    @abstractmethod
    def note(self, layout: Layout) -> None:
        """The bucket that is ready has these tensors."""

    @abstractmethod
    def saved(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of an engine, with what the course needs to go on."""

    @abstractmethod
    def load(self, state: Mapping[str, Any]) -> None:
        """Takes its part of a state, before the engine takes the rest."""


class Fixed(Course):
    """The codec that was asked for, from the first step to the last."""

    decided, explanation = True, ""

    def text(self, codec: str) -> str:
        return codec

    def plan(self, asked: Plan, now: Plan) -> Plan:
        return asked

    def bucket_ready(self, is_first: bool) -> None:
        pass

    def exchange(self, node: Node, engine: Engine, bucket: Bucket, raw: RawGradients) -> None:
        node.exchange(engine, bucket)

    def end_backward(self) -> None:
        pass

    def note(self, layout: Layout) -> None:
        pass

    def saved(self, state: dict[str, Any]) -> dict[str, Any]:
        return state

    def load(self, state: Mapping[str, Any]) -> None:
        if isinstance(state, Mapping) and "auto" in state:
            raise StateError('the state is of an auto run, this compressor is not: pass codec="auto"')


class Piloted(Course):
    """What the pilot takes. The first bucket of a step may switch the codec, on all ranks alike.

    `can_pass`: whether the buckets of the step that begins could go DDP's own way. `layouts` are those of the
    buckets of this step so far, which the pilot's helm sees too.
    """

    guards = True

    def __init__(
        self,
        pilot: Pilot,
        safeguard: Safeguard,
        layouts: list[Layout],
        can_pass: Callable[[], bool],
        about_quality: str = "",
    ) -> None:
        self.pilot, self.layouts, self._can_pass = pilot, layouts, can_pass
        self._safeguard, self._about_quality = safeguard, about_quality

    def text(self, codec: str) -> str:
        return f"auto ({self.pilot.codec})"

    def plan(self, asked: Plan, now: Plan) -> Plan:
        return now

    @property
    def decided(self) -> bool:
        return self.pilot.decided

    @property
    def explanation(self) -> str:
        about = f"auto: {self._about_quality}" if self._about_quality else ""
        return "\n".join(filter(None, [about, self.pilot.explanation]))

    def bucket_ready(self, is_first: bool) -> None:
        if not is_first:
            self.pilot.pace.ready(time.perf_counter())
            return
        if self._safeguard.asked():  # all exchanges of the step before are over
            self.pilot.veto()
        self.pilot.begin_step(time.perf_counter())
        self.layouts.clear()
        self.passes = self.pilot.codec == DENSE and self._can_pass()

    def exchange(self, node: Node, engine: Engine, bucket: Bucket, raw: RawGradients) -> None:
        self._safeguard.exchange(bucket, raw)

    def end_backward(self) -> None:
        self.pilot.pace.end(time.perf_counter())

    def note(self, layout: Layout) -> None:
        self.layouts.append(layout)

    def saved(self, state: dict[str, Any]) -> dict[str, Any]:
        return {**state, "auto": self.pilot.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        if not isinstance(state, Mapping) or "auto" not in state:
            raise StateError("the state is not of an auto run: pass the codec that it was made with")
        self.pilot.load(state["auto"])

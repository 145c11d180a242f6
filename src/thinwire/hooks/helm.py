"""The helm of an auto run: what its pilot can do to the exchange. Every act runs on the exchange's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thinwire.auto.pace import Passes
from thinwire.exchange.engine import Engine
from thinwire.exchange.node import Node
from thinwire.groups.base import Group
from thinwire.hooks.survey import Survey
from thinwire.plans.plan import Plan

MESSAGE_NUMEL = 1 << 18  # 1 MB: long enough to see a link's rate
MESSAGES = 3

Call = Callable[[Callable[[], Any]], Any]


class Helm:
    """Switches the plan of the engine, and asks the group of all workers for what all of them know alike."""

    def __init__(
        self,
        engine: Engine,
        node: Node,
        everybody: Group,
        call: Call,
        plan_of: Callable[[str], Plan],
        survey: Survey,
    ) -> None:
        self._engine, self._node, self._everybody = engine, node, everybody
        self._call, self._plan_of, self._survey = call, plan_of, survey

    def adopt(self, text: str) -> None:
        """Gradients travel by this choice, whose state is loaded next."""
        self._node.adopt(self._engine, self._plan_of(text))

    def steer(self, text: str) -> None:
        """From this step on gradients travel by this choice; collective."""
        plan = self._plan_of(text)
        self._call(lambda: self._node.switch(self._engine, plan))

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """The largest of every number over all ranks; collective. Numbers are times: none is below 0."""
        agreed: list[float] = self._call(lambda: self._largest(numbers))
        return agreed

    def link_s(self) -> float:
        """Seconds of a message of fixed size, the best of a few, on the slowest rank; collective."""
        seconds: float = self._call(self._message_s)
        return seconds

    def measure(self, codecs: Sequence[str], passes: Passes) -> None:
        """Probes the links and, if they are not known, the codecs; collective."""
        self._call(lambda: self._survey.measure(codecs, passes))

    def forecasts(self, texts: Sequence[str], passes: Passes) -> dict[str, float]:
        """Seconds of a step by choice, of what was measured."""
        return self._survey.forecasts(texts, passes)

    def _largest(self, numbers: Sequence[float]) -> list[float]:
        """Bit patterns of floats that are not negative are ordered as these are."""
        device, meter = self._engine.context.device, self._engine.group
        words = torch.tensor(numbers, dtype=torch.float32, device=device).view(torch.int32)
        with meter.aside(), meter.turned_to(self._everybody):
            meter.all_reduce_max(words).wait()
        return [float(number) for number in words.view(torch.float32)]

    def _message_s(self) -> float:
        meter, best = self._engine.group, float("inf")
        message = torch.zeros(MESSAGE_NUMEL, device=self._engine.context.device)
        for _ in range(MESSAGES):
            self._largest([0.0])  # all ranks begin together
            with meter.aside(), meter.turned_to(self._everybody):
                start = time.perf_counter()
                meter.all_reduce(message).wait()
                best = min(best, time.perf_counter() - start)
        return self._largest([best])[0]

"""The helm of an auto run: what its pilot can do to the exchange. Every act runs on the exchange's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thinwire.auto.pace import Passes
from thinwire.exchange.engine import Engine
from thinwire.plans.plan import Plan
from thinwire.tensors.layout import Layout

MESSAGE_NUMEL = 1 << 18  # 1 MB: long enough to see a link's rate
MESSAGES = 3

Call = Callable[[Callable[[], Any]], Any]


class Helm:
    """Switches the engine's plan, and asks the group for what all ranks know alike."""

    def __init__(
        self, engine: Engine, call: Call, plan_of: Callable[[str], Plan], buckets: Sequence[Layout]
    ) -> None:
        self._engine, self._call, self._plan_of = engine, call, plan_of
        self._buckets = buckets  # of the last step

    def adopt(self, codec: str) -> None:
        """Gradients travel by this codec, whose state is loaded next."""
        self._engine.adopt(self._plan_of(codec))

    def steer(self, codec: str) -> None:
        """From this step on gradients travel by this codec; collective."""
        plan = self._plan_of(codec)
        self._call(lambda: self._engine.switch(plan))

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """The largest of every number over all ranks; collective. Numbers are times: none is below 0."""
        agreed: list[float] = self._call(lambda: self._largest(numbers))
        return agreed

    def link_s(self) -> float:
        """Seconds of a message of fixed size, the best of a few, on the slowest rank; collective."""
        seconds: float = self._call(self._message_s)
        return seconds

    def forecasts(self, codecs: Sequence[str], passes: Passes) -> dict[str, float]:
        """Seconds of a step by codec, as the performance model says; collective."""
        return dict.fromkeys(codecs, passes.rest_s)

    def _largest(self, numbers: Sequence[float]) -> list[float]:
        """Bit patterns of floats that are not negative are ordered as these are."""
        device = self._engine.context.device
        words = torch.tensor(numbers, dtype=torch.float32, device=device).view(torch.int32)
        with self._engine.group.aside():
            self._engine.group.all_reduce_max(words).wait()
        return [float(number) for number in words.view(torch.float32)]

    def _message_s(self) -> float:
        group, best = self._engine.group, float("inf")
        message = torch.zeros(MESSAGE_NUMEL, device=self._engine.context.device)
        with group.aside():
            for _ in range(MESSAGES):
                self._largest([0.0])  # all ranks begin together
                start = time.perf_counter()
                group.all_reduce(message).wait()
                best = min(best, time.perf_counter() - start)
        return self._largest([best])[0]

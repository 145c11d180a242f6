"""The helm of an auto run: what its pilot can do to the exchange. Every act runs on the exchange's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thinwire.auto.pace import Passes
from thinwire.auto.qualities import DENSE
from thinwire.exchange.engine import Engine
from thinwire.perf.calibration import Calibration
from thinwire.perf.compute import Compute
from thinwire.perf.measured import bucket_layers, forecast_measured
from thinwire.perf.store import calibrated
from thinwire.perf.wire import DDP
from thinwire.plans.model import Model
from thinwire.plans.plan import Plan
from thinwire.tensors.layout import Layout

MESSAGE_NUMEL = 1 << 18  # 1 MB: long enough to see a link's rate
MESSAGES = 3
PROBE_SECONDS, PROBE_STEPS = 1.0, 5  # a probe may take so long, and not longer than so many steps

Call = Callable[[Callable[[], Any]], Any]


class Helm:
    """Switches the engine's plan, and asks the group for what all ranks know alike."""

    def __init__(
        self,
        engine: Engine,
        call: Call,
        model: Model,
        plan_of: Callable[[str], Plan],
        buckets: Sequence[Layout],
    ) -> None:
        self._engine, self._call, self._model, self._plan_of = engine, call, model, plan_of
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
        """Seconds of a step by codec, as the performance model says; collective.

        Codec speeds may come from the cache, the link is measured now: it is what changes.
        """
        seconds = min(PROBE_SECONDS, PROBE_STEPS * (passes.rest_s + passes.ready_s[-1]))
        calibration: Calibration = self._call(lambda: self._calibration(codecs, seconds))
        compute = Compute(1, passes.rest_s, passes.ready_s[-1], passes.ready_s)
        buckets = bucket_layers(self._model, [layout.names for layout in self._buckets])
        world = self._engine.group.size
        made = forecast_measured([_ddp(codec) for codec in codecs], buckets, world, calibration, compute)
        both = zip(codecs, made, strict=True)
        return {codec: one.step_s for codec, one in both if one.refusal is None}

    def _calibration(self, codecs: Sequence[str], seconds: float) -> Calibration:
        group, device = self._engine.group, self._engine.context.device
        able = [codec for codec in codecs if codec != DENSE]
        with group.aside():
            return calibrated(group, device, able, seconds=seconds, quick=True)

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


def _ddp(codec: str) -> str:
    """To send everything is DDP's own way here."""
    return DDP if codec == DENSE else codec

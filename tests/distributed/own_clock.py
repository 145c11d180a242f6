"""Auto on real ranks under a clock of the test's own: a table says what a step takes, not the machine.

    with wrap(net, "auto") as it, own_clock(it, {"dense": 0.05, "fp16": 0.03}):
        fit(it.model, 30)                     # probes, trials and switches are real; only times are made up

This file is the one place that knows how auto reads the time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from training import Wrapped

from thinwire.auto.autotuner import Autotuner
from thinwire.auto.watch import Passes
from thinwire.hooks import selector as course_module
from thinwire.hooks.selector import AutoSelector
from thinwire.perf.fit import Forecasts

OTHERS = "*"  # in a table: every choice that it does not name
EXCHANGE = 0.9  # of a step, the part in which means are waited for


class OwnClock:
    """Stands for the module `time` in the course of a run; a step takes what the table says of its codec."""

    def __init__(self, autotuner: Autotuner, step_s: Mapping[str, float]) -> None:
        self._autotuner, self._step_s, self._now = autotuner, step_s, 0.0

    def perf_counter(self) -> float:
        return self._now

    def step_s(self, text: str) -> float:
        return self._step_s.get(text, self._step_s.get(OTHERS, self._step_s["dense"]))

    def advance(self, part: float) -> None:
        self._now += part * self.step_s(self._autotuner.codec)


class MadeUpHelm:
    """The actions of a run whose acts are real, collectives included, and whose times are the table's."""

    def __init__(self, actions: Any, clock: OwnClock, link_s: float) -> None:
        self._helm, self._clock, self._link_s = actions, clock, link_s

    def adopt(self, text: str) -> None:
        self._helm.adopt(text)

    def steer(self, text: str) -> None:
        self._helm.steer(text)

    def agree(self, numbers: Sequence[float]) -> list[float]:
        shared: list[float] = self._helm.agree(numbers)
        return shared

    def link_s(self, nbytes: int, messages: int) -> float:
        assert self._helm.link_s(nbytes, messages) > 0
        return self._link_s * (1 + nbytes / 1e4)

    def drain(self) -> None:
        self._helm.drain()

    @property
    def flood_bytes(self) -> int:
        return 0

    def measure(self, codecs: Sequence[str], step_s: float) -> None:
        self._helm.measure(codecs, step_s)

    def forecasts(self, texts: Sequence[str], passes: Passes, measured_s: Mapping[str, float]) -> Forecasts:
        real = self._helm.forecasts(texts, passes, measured_s)
        made = {text: self._clock.step_s(text) for text in real.step_s}
        return Forecasts(made, made, made["dense"])


@contextlib.contextmanager
def own_clock(it: Wrapped, step_s: Mapping[str, float], link_s: float = 0.01) -> Iterator[Autotuner]:
    """Until the block ends a step of this run takes `step_s` of its codec, and a message takes `link_s`."""
    assert it.compressor is not None
    course = it.compressor.auto
    assert isinstance(course, AutoSelector)
    clock = OwnClock(course.autotuner, step_s)

    ended = -1  # the last step whose end was noted: every bucket of it says so

    def end_backward() -> None:
        nonlocal ended
        if ended == course.autotuner.step:
            return
        ended = course.autotuner.step
        clock.advance(EXCHANGE)
        AutoSelector.end_backward(course)
        clock.advance(1 - EXCHANGE)

    course.end_backward = end_backward  # type: ignore[method-assign]
    course.autotuner.actions = MadeUpHelm(course.autotuner.actions, clock, link_s)
    before, course_module.time = course_module.time, clock  # type: ignore[assignment]
    try:
        yield course.autotuner
    finally:
        course_module.time = before

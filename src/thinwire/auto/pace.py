"""Pace: when the buckets of a worker's steps are ready, and how long its steps take."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median


@dataclass
class StepMarks:
    """One step, in seconds of a clock: when each bucket was ready, and when all means were there."""

    ready: list[float]
    end: float | None = None


@dataclass(frozen=True)
class Passes:
    """What a step computes, seen from its exchange.

    `rest_s`: from the end of one exchange to the first bucket of the next, with nothing to send: update,
    forward pass, the start of the backward pass. `ready_s`: the buckets, counted from the first of them.
    """

    rest_s: float
    ready_s: tuple[float, ...]

    @classmethod
    def of(cls, steps: list[StepMarks]) -> Passes | None:
        """Medians over steps one behind the other; None if there are none with the same buckets."""
        pairs = [
            (step, after)
            for step, after in pairwise(steps)
            if step.end is not None and len(step.ready) == len(steps[-2].ready)
        ]
        if not pairs:
            return None
        rest = median(after.ready[0] - step.end for step, after in pairs if step.end is not None)
        readies = zip(*(step.ready for step, _ in pairs), strict=True)
        firsts = [step.ready[0] for step, _ in pairs]
        ready = tuple(median(t - first for t, first in zip(times, firsts, strict=True)) for times in readies)
        return cls(rest, ready)


@dataclass
class Pace:
    """The steps since it was last asked to forget. A step lasts from its first bucket to the next step's.

    >>> pace = Pace()
    >>> for now in (1.0, 1.5, 2.25): pace.begin(now)
    >>> pace.durations(skip=0)
    [0.5, 0.75]
    """

    steps: list[StepMarks] = field(default_factory=list)

    def begin(self, now: float) -> None:
        """The first bucket of a step is ready."""
        self.steps.append(StepMarks([]))
        self.ready(now)

    def ready(self, now: float) -> None:
        """A bucket is ready (the first one too)."""
        self.steps[-1].ready.append(now)

    def end(self, now: float) -> None:
        """The means of a step are there, for its backward pass to end."""
        if self.steps:
            self.steps[-1].end = now

    def durations(self, skip: int) -> list[float]:
        """Seconds of the steps that are over, but for the first ones."""
        firsts = [step.ready[0] for step in self.steps]
        return [after - first for first, after in pairwise(firsts)][skip:]

    def forget(self) -> None:
        """From here on only the step that is beginning counts."""
        del self.steps[:-1]

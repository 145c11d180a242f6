"""Step times: the seconds that a run has spent in its steps, and those of them in which it waited."""

from __future__ import annotations

from dataclasses import dataclass, field

WARM_UP_STEPS = 3  # not in the mean: buckets are rebuilt, buffers are allocated


@dataclass
class StepTimes:
    """Counts every step; the mean leaves out the warm-up."""

    seconds: float = 0.0
    waited_s: float = 0.0  # for gradients to travel, when there was nothing left to compute
    num_steps: int = 0
    _later: list[float] = field(default_factory=list)

    def add(self, seconds: float, waited_s: float = 0.0) -> None:
        """One step took so long."""
        self.seconds += seconds
        self.waited_s += waited_s
        if self.num_steps >= WARM_UP_STEPS:
            self._later.append(seconds)
        self.num_steps += 1

    @property
    def mean_ms(self) -> float:
        """Of the steps after the warm-up, or of all if there are no others."""
        if not self._later:
            return 1e3 * self.seconds / max(1, self.num_steps)
        return 1e3 * sum(self._later) / len(self._later)

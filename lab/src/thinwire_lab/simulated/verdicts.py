"""Verdicts over what `auto` decided on simulated clusters: near the best, no slower than DDP, and in time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

MAX_STEPS, MAX_TRIAL_S = 70, 600.0
WORSE, SLOWER = 1.10, 1.05  # times the best allowed choice, times plain DDP
NEAR_SHARE = 0.99  # of decisions that must be near the best


@dataclass(frozen=True)
class ScenarioOutcome:
    """What auto took, and the true steps: of that, of plain DDP and of the best that was allowed."""

    seed: int
    codec: str
    best: str
    steps: int
    trial_s: float
    taken_s: float
    dense_s: float
    best_s: float
    decided: bool
    changed: bool = False

    @property
    def near_best(self) -> bool:
        return self.taken_s <= WORSE * self.best_s

    @property
    def not_slower(self) -> bool:
        return self.taken_s <= SLOWER * self.dense_s

    @property
    def in_time(self) -> bool:
        return self.decided and (self.changed or (self.steps <= MAX_STEPS and self.trial_s <= MAX_TRIAL_S))

    def __str__(self) -> str:
        when = "200 steps after a change" if self.changed else f"after {self.steps} steps"
        ratios = f"{self.taken_s / self.best_s:.2f} of {self.best}, {self.taken_s / self.dense_s:.2f} of DDP"
        return f"seed {self.seed}, {when}: {self.codec}, {ratios}"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "near_best": self.near_best, "not_slower": self.not_slower}


@dataclass(frozen=True)
class Summary:
    """Verdicts over many decisions: after the first steps, and 200 steps after a link changed."""

    decisions: int
    near_best: int
    not_slower: int
    in_time: int
    worst: tuple[ScenarioOutcome, ...]  # those that missed a limit

    @classmethod
    def of(cls, outcomes: Sequence[ScenarioOutcome]) -> Summary:
        missed = [one for one in outcomes if not (one.near_best and one.not_slower and one.in_time)]
        worst = sorted(missed, key=lambda one: one.taken_s / one.best_s, reverse=True)
        return cls(
            len(outcomes),
            sum(one.near_best for one in outcomes),
            sum(one.not_slower for one in outcomes),
            sum(one.in_time for one in outcomes),
            tuple(worst),
        )

    @property
    def holds(self) -> bool:
        everything = self.not_slower == self.in_time == self.decisions
        return everything and self.near_best >= NEAR_SHARE * self.decisions

    def to_json(self) -> dict[str, Any]:
        return {
            "decisions": self.decisions,
            "near_best": self.near_best,
            "not_slower": self.not_slower,
            "in_time": self.in_time,
            "holds": self.holds,
            "missed": [one.to_json() for one in self.worst],
        }

    def __str__(self) -> str:
        n = self.decisions
        lines = [
            f"{n} decisions",
            f"{self.near_best / n:7.2%} at most {WORSE} times the best allowed (asked: {NEAR_SHARE:.0%})",
            f"{self.not_slower / n:7.2%} at most {SLOWER} times plain DDP (asked: all)",
            f"{self.in_time / n:7.2%} within {MAX_STEPS} steps and {MAX_TRIAL_S:.0f} s (asked: all)",
        ]
        return "\n".join([*lines, *map(str, self.worst[:10])])

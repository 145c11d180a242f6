"""A recipe: everything that decides a training run, as one frozen value."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, fields
from typing import Any

from thinwire.errors import LabError

OPTIMIZERS = ("sgd", "adam", "adamw")
SCHEDULES = ("constant", "cosine")


@dataclass(frozen=True)
class Recipe:
    """One training run; the same recipe gives the same parameters, bit for bit, on the same machine."""

    task: str
    model: str
    epochs: float
    batch: int  # examples per worker and step
    lr: float
    codec: str = "terngrad"
    workers: int = 4
    steps: int | None = None  # instead of epochs
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float = 0.0
    schedule: str = "cosine"
    warmup: float = 0.05  # share of the steps in which the learning rate rises from zero
    augment: bool = False
    seed: int = 0
    rate: str | None = None  # of every worker's link; None: as fast as this machine is
    evaluations: int = 10

    def __post_init__(self) -> None:
        _require(
            self.optimizer in OPTIMIZERS,
            f"optimizer {self.optimizer!r} must be one of {', '.join(OPTIMIZERS)}",
        )
        _require(
            self.schedule in SCHEDULES, f"schedule {self.schedule!r} must be one of {', '.join(SCHEDULES)}"
        )
        _require(self.workers >= 1, f"workers must be at least 1, not {self.workers}")
        _require(self.batch >= 1, f"batch must be at least 1, not {self.batch}")
        _require(self.steps is None or self.steps >= 1, f"steps must be at least 1, not {self.steps}")
        _require(self.epochs > 0, f"epochs must be above 0, not {self.epochs}")
        _require(self.evaluations >= 1, f"evaluations must be at least 1, not {self.evaluations}")
        _require(self.lr > 0, f"lr must be above 0, not {self.lr}")
        _require(0 <= self.seed < 2**31, f"seed must be from 0 to 2147483647, not {self.seed}")

    def num_steps(self, num_examples: int) -> int:
        """Steps of the whole run over a training set of this size."""
        if self.steps is not None:
            return self.steps
        return max(1, round(self.epochs * self.steps_per_epoch(num_examples)))

    def steps_per_epoch(self, num_examples: int) -> int:
        """Full batches of all workers in one pass over the training set."""
        steps = num_examples // (self.batch * self.workers)
        _require(
            steps >= 1,
            f"{self.workers} workers with batches of {self.batch} need more than the {num_examples} examples "
            f"of {self.task}: take fewer workers or a smaller batch",
        )
        return steps

    def lr_at(self, step: int, num_steps: int) -> float:
        """Learning rate of a step: a linear warm-up, then constant or half a cosine down to zero."""
        rising = math.ceil(self.warmup * num_steps)
        if step < rising:
            return self.lr * (step + 1) / (rising + 1)
        if self.schedule == "constant":
            return self.lr
        return self.lr * 0.5 * (1 + math.cos(math.pi * (step - rising) / max(1, num_steps - rising)))

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def recipe_from_dict(values: dict[str, Any]) -> Recipe:
    """The recipe that `to_dict` wrote."""
    known = {field.name for field in fields(Recipe)}
    _require(
        set(values) <= known,
        f"recipe has unknown entries {sorted(set(values) - known)}: another version wrote it",
    )
    return Recipe(**values)


def _require(rule: bool, sentence: str) -> None:
    if not rule:
        raise LabError(sentence)

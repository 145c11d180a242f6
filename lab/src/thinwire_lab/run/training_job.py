"""A training job: what the launcher tells its workers about one run, as plain JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.reference_losses import ReferenceLosses


@dataclass(frozen=True)
class TrainingJob:
    """One run as its workers see it; paths are texts so that the job is plain JSON."""

    recipe: Recipe
    task_folder: str
    counters: bool  # read bytes from this host's interface counters (netlab)
    link_rate: str | None  # emulate this link inside thinwire's own group
    virtual: bool = False  # all workers are in one process
    checkpoint: str | None = None
    checkpoint_every: int | None = None  # steps
    resume: str | None = None
    stop_at: int | None = None  # step at which the run stops early
    reference: ReferenceLosses = field(default_factory=ReferenceLosses)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "recipe": self.recipe.to_dict(), "reference": self.reference.points}


def read_training_job(path: Path) -> TrainingJob:
    """The job that was written as `TrainingJob.to_dict`."""
    values: dict[str, Any] = json.loads(path.read_text())
    reference = ReferenceLosses(tuple((int(step), float(loss)) for step, loss in values["reference"]))
    return TrainingJob(**{**values, "recipe": recipe_from_dict(values["recipe"]), "reference": reference})

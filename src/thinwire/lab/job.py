"""A job: what the launcher tells its workers about one run, as a JSON file beside the data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thinwire.lab.recipe import Recipe, recipe_from_dict

FILE_NAME = "job.json"
Losses = tuple[tuple[int, float], ...]  # (step, loss), in order


@dataclass(frozen=True)
class Job:
    """One run as its workers see it; paths are texts so that the job is plain JSON."""

    recipe: Recipe
    task_folder: str
    counters: bool  # read bytes from this host's interface counters (netlab)
    link_rate: str | None  # emulate this link inside thinwire's own group
    checkpoint: str | None = None
    checkpoint_every: int | None = None  # steps
    resume: str | None = None
    stop_at: int | None = None  # step at which the run stops early
    reference: Losses = ()  # of the run that this one is compared with

    def write(self, folder: Path) -> Path:
        """Write the job into its folder; the same folder holds the rendezvous file."""
        path = folder / FILE_NAME
        path.write_text(json.dumps({**asdict(self), "recipe": self.recipe.to_dict()}))
        return path


def read_job(path: Path) -> Job:
    """The job that `Job.write` wrote."""
    values: dict[str, Any] = json.loads(path.read_text())
    reference = tuple((int(step), float(loss)) for step, loss in values["reference"])
    return Job(**{**values, "recipe": recipe_from_dict(values["recipe"]), "reference": reference})

"""Trainings: recipes run by virtual workers in one process, and what is kept of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from thinwire.lab.claims.rounded import rounded
from thinwire.lab.claims.run import Result, Run
from thinwire.lab.claims.study import Study, Tell
from thinwire.lab.data import load_task
from thinwire.lab.net.network import VIRTUAL, open_network
from thinwire.lab.report.outcome import Outcome, Row
from thinwire.lab.run.launch import launch, shared_task
from thinwire.lab.run.recipe import Recipe, recipe_from_dict

KIND = "training"
CURVE_POINTS = 30


@dataclass(frozen=True)
class Trainings(Study):
    """Every recipe with every seed."""

    recipes: Sequence[Recipe]
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        return [Run(KIND, settings_of(recipe), seed) for recipe in self.recipes]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        recipe = recipe_from_dict({**run.settings, "seed": run.seed})
        task = load_task(recipe.task, data)
        num_steps = recipe.num_steps(len(task.train))

        def on_row(row: Row) -> None:
            if row["row"] == "step":
                tell("", row["step"], num_steps)

        with open_network(None, recipe.workers, VIRTUAL) as network, shared_task(task) as folder:
            outcome, rows = launch(recipe, task, folder, network, on_row)
        return summary(outcome, rows)


def settings_of(recipe: Recipe) -> dict[str, object]:
    """All that decides the result, but the seed."""
    return {name: value for name, value in recipe.to_dict().items() if name != "seed"}


def summary(outcome: Outcome, rows: Sequence[Row]) -> Result:
    """Scores, bytes and a thinned curve: without paths, and short enough for a line."""
    steps = [row for row in rows if row["row"] == "step"]
    every = max(1, len(steps) // CURVE_POINTS)
    evaluations = [row for row in rows if row["row"] == "evaluation"]
    return {
        "accuracy": outcome.accuracy,
        "test_loss": outcome.test_loss,
        "steps": outcome.steps,
        "bytes_per_step": outcome.bytes_per_step,
        "dense_bytes_per_step": outcome.dense_bytes_per_step,
        "losses": [[row["step"], rounded(row["loss"])] for row in steps[every - 1 :: every]],
        "accuracies": [[row["step"], row["accuracy"]] for row in evaluations],
    }

"""Trainings by virtual workers in this process, and what is kept of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from thinwire_lab.claims.rounded import rounded
from thinwire_lab.claims.run import Measured, Result, Run
from thinwire_lab.claims.study import Study, Tell
from thinwire_lab.data import load_task
from thinwire_lab.run.byte_meter import CompressorMeter, ring_bytes
from thinwire_lab.run.evaluation import evaluate
from thinwire_lab.run.peers import Nobody
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.virtual_trainer import VirtualTrainer

KIND, EXAMPLES = "training", "examples"
CURVE_POINTS = 30


@dataclass(frozen=True)
class Trainings(Study):
    """Every recipe with every seed; what `thinwire train --network virtual` does, scored once at the end.

    `examples`: train on the first so many only.
    """

    recipes: Sequence[Recipe]
    examples: int | None = None
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        few = {} if self.examples is None else {EXAMPLES: self.examples}
        return [Run(KIND, {**settings_of(recipe), **few}, seed) for recipe in self.recipes]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)  # as every worker has
        settings = {**run.settings, "seed": run.seed}
        examples = settings.pop(EXAMPLES, None)
        recipe = recipe_from_dict(settings)
        task = load_task(recipe.task, data)
        trainer = VirtualTrainer(recipe, task if examples is None else task.with_few(examples))
        losses = []
        try:
            for step, loss in enumerate(trainer.steps(0, trainer.num_steps), 1):
                losses.append(loss)
                tell("", step, trainer.num_steps)
            return _summary(trainer, losses)
        finally:
            trainer.close()


def settings_of(recipe: Recipe) -> dict[str, object]:
    """All that decides the result, but the seed."""
    return {name: value for name, value in recipe.to_dict().items() if name != "seed"}


def fewer_bytes(one: Measured) -> float:
    """How many times fewer bytes than a ring all-reduce of fp32."""
    return float(one.result["dense_bytes_per_step"] / one.result["bytes_per_step"])


def thinned(losses: Sequence[float]) -> list[list[float]]:
    """Some steps and the mean losses of those up to them: enough for a curve.

    >>> thinned([3.0, 1.0])
    [[1, 3.0], [2, 1.0]]
    """
    every = max(1, -(-len(losses) // CURVE_POINTS))
    parts = [losses[start : start + every] for start in range(0, len(losses), every)]
    return [[k * every + len(part), rounded(sum(part) / len(part))] for k, part in enumerate(parts)]


def _summary(trainer: VirtualTrainer, losses: list[float]) -> Result:
    scores = evaluate(trainer.net, trainer.task, Nobody(), losses)
    return {
        "accuracy": scores.accuracy,
        "test_loss": rounded(scores.test_loss),
        "steps": trainer.step,
        "bytes_per_step": CompressorMeter(trainer.compressor).sent_bytes(1),
        "dense_bytes_per_step": ring_bytes(4 * trainer.num_parameters, trainer.recipe.workers),
        "losses": thinned(losses),
    }

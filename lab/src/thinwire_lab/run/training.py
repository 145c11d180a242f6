"""A training: a net on its way through a recipe; what trainers in processes and of virtual workers share."""

from __future__ import annotations

from torch import nn

import thinwire as tw
from thinwire_lab.data import Task
from thinwire_lab.data.example_order import ExampleOrder
from thinwire_lab.models import fit_check
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.run.reference_losses import ReferenceLosses


class Training:
    """The net as the recipe's seed makes it, the order of its examples, and the step it is at."""

    compressor: tw.Compressor | None = None

    def __init__(self, recipe: Recipe, task: Task, reference: ReferenceLosses | None) -> None:
        self.recipe, self.task = recipe, task
        self.reference = reference or ReferenceLosses()
        card = fit_check(recipe.model, task.name, task.train.x.shape[1:])
        self.net: nn.Module = card.build(recipe.seed, task.classes)
        self.num_steps = recipe.num_steps(len(task.train))
        self.order = ExampleOrder(len(task.train), recipe.batch, recipe.workers, recipe.seed)
        self.step = 0

    @property
    def epoch(self) -> float:
        return self.step / self.order.steps_per_epoch

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.net.parameters())

    def seed_of(self, rank: int) -> int:
        """What a worker's draws of this step follow from."""
        return (self.recipe.seed << 32) + self.step * self.recipe.workers + rank

    def strength(self) -> dict[str, float]:
        """How strong the codec is now: its strength and, if it drops a part of the numbers, theta."""
        compressor = self.compressor
        if compressor is None or (compressor.plan.control is None and compressor.theta is None):
            return {}
        theta = {} if compressor.theta is None else {"theta": compressor.theta}
        return {"strength": compressor.strength, **theta}

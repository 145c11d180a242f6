"""A trainer: one rank's model, optimizer and share of the data, and the step it is at."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import thinwire as tw
from thinwire import Compressor
from thinwire.errors import LabError
from thinwire_lab.data import Task
from thinwire_lab.data.task import ExampleOrder, Indices, shift_and_flip
from thinwire_lab.models import fit_check
from thinwire_lab.report.record import Row
from thinwire_lab.run.checkpoint import Checkpoint, check_same_run, read_checkpoint
from thinwire_lab.run.ddp_exchange import HookedModel
from thinwire_lab.run.recipe import Recipe

ADAMS: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType(
    {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
)
Hook = Callable[[nn.Module], HookedModel]


def make_optimizer(
    net: nn.Module, recipe: Recipe, compressor: Compressor | None = None
) -> torch.optim.Optimizer:
    """SGD leaves momentum to the compressor where its memory applies it (dgc)."""
    groups: Any = list(net.parameters())
    optimizer: torch.optim.Optimizer
    if recipe.optimizer in ADAMS:
        optimizer = ADAMS[recipe.optimizer](groups, recipe.lr, weight_decay=recipe.weight_decay)
    else:
        if compressor is not None:
            groups = compressor.param_groups(groups, momentum=recipe.momentum)
        optimizer = torch.optim.SGD(groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
    if compressor is not None:
        compressor.check_optimizer(optimizer)
    return optimizer


class GradientWait:
    """Seconds of a step spent waiting for gradients; the rest is forward and backward pass and update.

    Gradients tell when they are ready, before DDP takes them; `end` is called when the backward pass returns.
    """

    def __init__(self, net: nn.Module) -> None:
        self.seconds = 0.0  # of the step that ended last
        self._ready = time.perf_counter()
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]

    def _note(self, parameter: Tensor) -> None:
        self._ready = time.perf_counter()

    def end(self) -> None:
        """The backward pass has returned: the gradients of all ranks are here."""
        self.seconds = time.perf_counter() - self._ready


@dataclass(frozen=True)
class ReferenceLosses:
    """The losses of a baseline run as (step, loss), in order; empty without a baseline."""

    points: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> ReferenceLosses:
        """The losses in the rows of a run."""
        return cls(tuple((row["step"], row["loss"]) for row in rows if row["row"] == "step"))

    def at(self, step: int) -> float | None:
        """The loss of a step, counted from 1, interpolated between recorded steps."""
        if not self.points:
            return None
        steps, losses = zip(*self.points, strict=True)
        return float(np.interp(step, steps, losses))


class Training:
    """The net as the recipe's seed makes it, the order of its examples, and the step it is at."""

    compressor: tw.Compressor | None = None
    local: tw.DiLoCo | None = None  # what exchanges local steps

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

    def settle(self) -> None:
        """Behind the last step: local steps end their round."""

    def level(self) -> dict[str, float]:
        """The compression level and, if the codec drops a part of the values, theta."""
        compressor = self.compressor
        if compressor is None or (compressor.plan.schedule is None and compressor.theta is None):
            return {}
        theta = {} if compressor.theta is None else {"theta": compressor.theta}
        return {"compression_level": compressor.compression_level, **theta}


class Trainer(Training):
    """Trains by a recipe; what it draws follows from seed, step and rank alone.

    `hook` lets gradients travel while the backward pass runs; without one this rank is alone.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        rank: int = 0,
        hook: Hook | None = None,
        reference: ReferenceLosses | None = None,
    ) -> None:
        super().__init__(recipe, task, reference)
        self.rank = rank
        self.wait = GradientWait(self.net)
        hooked = None if hook is None else hook(self.net)
        self.model: nn.Module = self.net if hooked is None else hooked.model
        self.compressor = None if hooked is None else hooked.compressor
        self.local = None if hooked is None else hooked.local
        self.optimizer = make_optimizer(self.net, recipe, self.compressor)

    @property
    def waited_s(self) -> float:
        """Seconds of the last step in which there was nothing left to do but to wait for gradients."""
        return self.wait.seconds

    def steps(self, first: int, last: int) -> Iterator[float]:
        """Trains from step to step; gives this rank's loss after each."""
        for indices in self.order.batches(self.rank, first, last):
            yield self.train_step(indices)

    def train_step(self, indices: Indices) -> float:
        """Backward pass and update, and on to the next step; gives this rank's loss."""
        loss = self.backward(indices)
        self.update()
        return loss

    def backward(self, indices: Indices) -> float:
        """Forward and backward pass (gradients travel meanwhile); gives this rank's loss.

        The control hears of the loss before the backward pass, so that this very step goes by it.
        """
        torch.manual_seed(self.seed_of(self.rank))
        lr = self.recipe.lr_at(self.step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        x, y = self.task.batch(self.task.train, indices)
        loss = self.task.loss(self.model(shift_and_flip(x) if self.recipe.augment else x), y)
        self._observe(loss, lr)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.wait.end()
        return loss.item()

    def update(self) -> None:
        """Let the optimizer use the gradients; this ends the step."""
        self.optimizer.step()
        if self.local is not None:
            self.local.step()
        self.step += 1

    def settle(self) -> None:
        if self.local is not None:
            self.local.sync()

    def _observe(self, loss: Tensor, lr: float) -> None:
        """Tell a control how training goes, beside what the run it is compared with had lost at this step."""
        if self.compressor is not None:
            reference = self.reference.at(self.step + 1)
            self.compressor.observe(loss, lr=lr, epoch=self.epoch, reference=reference)

    def checkpoint(self) -> Checkpoint:
        """The state of the run; gathering the compressor's is collective."""
        state = None if self.compressor is None else self.compressor.state_dict(gather=True)
        return Checkpoint(self.recipe, self.step, self.net.state_dict(), self.optimizer.state_dict(), state)

    def close(self) -> None:
        """Ends the compressor's thread."""
        for running in (self.compressor, self.local):
            if running is not None:
                running.close()

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        1. run one throw-away step, because DDP re-arranges its buckets after the first one and sums of floats
           depend on their place in a bucket;  2. load model, optimizer and compressor;  3. set the step.
        """
        checkpoint = read_checkpoint(path)
        check_same_run(path, checkpoint, self.recipe)
        self.train_step(next(self.order.batches(self.rank, 0, 1)))
        try:
            self.net.load_state_dict(checkpoint.model)
            self.optimizer.load_state_dict(checkpoint.optimizer)
        except (RuntimeError, ValueError) as error:
            raise LabError(f"checkpoint {path} does not fit model {self.recipe.model!r}: {error}") from error
        if self.compressor is not None and checkpoint.compressor is not None:
            self.compressor.load_state_dict(checkpoint.compressor)
        self.step = checkpoint.step

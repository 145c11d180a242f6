"""Recording: trains a subject in this process and keeps its gradients early, midway and late."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from thinwire.errors import LabError
from thinwire.lab.augment import shift_and_flip
from thinwire.lab.data import Task, load_task
from thinwire.lab.data.task import Indices
from thinwire.lab.models import fit_check
from thinwire.lab.order import Order
from thinwire.lab.recipe import Recipe
from thinwire.lab.study.snapshot import Snapshot
from thinwire.lab.study.subject import Subject
from thinwire.policy import Model, Policy
from thinwire.spec import Layout

MOMENTS = {"early": 0.05, "middle": 0.5, "late": 0.95}  # shares of the run
WINDOW = 40  # steps before a moment whose gradients are kept too
MIN_STEPS = 20  # below that two moments would share their steps

Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


def record(subject: Subject, data: Path | None, tell: Tell = lambda *_: None) -> Iterator[Snapshot]:
    """Trains by the task's recipe on one worker and gives a snapshot at each moment, while it trains."""
    recipe = subject.recipe
    task = load_task(recipe.task, data)
    trainer = Trainer(recipe, task)
    steps = recipe.num_steps(len(task.train))
    if steps < MIN_STEPS:
        raise LabError(f"--steps {steps} is too short a run to have a middle: take at least {MIN_STEPS}")
    moments = {math.ceil(share * steps): moment for moment, share in MOMENTS.items()}
    window: deque[Tensor] = deque(maxlen=WINDOW)
    losses: deque[float] = deque(maxlen=WINDOW)
    for step, indices in enumerate(trainer.order.batches(0, 0, steps), 1):
        losses.append(trainer.backward(indices, step - 1, steps))
        gradient = trainer.gradient()
        if step in moments:
            yield Snapshot(
                subject=subject.name,
                moment=moments[step],
                step=step,
                num_steps=steps,
                loss=sum(losses) / len(losses),
                layout=trainer.layout,
                gradient=gradient,
                before=tuple(window),
                dense_names=trainer.dense_names,
            )
        window.append(gradient)
        trainer.optimizer.step()
        tell(f"training {subject.name}", step, steps)


class Trainer:
    """One worker without a network: model, optimizer, data."""

    def __init__(self, recipe: Recipe, task: Task) -> None:
        self.recipe, self.task = recipe, task
        self.net = fit_check(recipe.model, task.name, task.train.x.shape[1:]).build(recipe.seed, task.classes)
        self.order = Order(len(task.train), recipe.batch, 1, recipe.seed)
        self.optimizer = _optimizer(self.net, recipe)
        self.layout, self.dense_names = compressed_tensors(self.net)

    def backward(self, indices: Indices, step: int, steps: int) -> float:
        """The gradients of one batch, as the lab's workers compute them; gives the loss."""
        torch.manual_seed((self.recipe.seed << 32) + step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr_at(step, steps)
        x, y = self.task.batch(self.task.train, indices)
        loss = self.task.loss(self.net(shift_and_flip(x) if self.recipe.augment else x), y)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        return loss.item()

    def gradient(self) -> Tensor:
        """The compressed tensors' gradients end to end, in the order of memory."""
        parameters = dict(self.net.named_parameters())
        pieces = []
        for name in self.layout.names:
            gradient = parameters[name].grad
            assert gradient is not None, name
            pieces.append(gradient.contiguous().flatten())
        return torch.cat(pieces)


def compressed_tensors(net: nn.Module) -> tuple[Layout, tuple[str, ...]]:
    """The tensors that the default policy compresses, and the names of those that it keeps dense."""
    model, policy = Model.of(net), Policy.of("terngrad")
    compressed = [spec for spec in model.specs if not policy.choose(spec, model).codec.own_dtype]
    layout = Layout.packed(compressed)
    return layout, tuple(spec.name for spec in model.specs if spec.name not in layout.names)


def _optimizer(net: nn.Module, recipe: Recipe) -> torch.optim.Optimizer:
    if recipe.optimizer == "adam":
        return torch.optim.Adam(net.parameters(), recipe.lr, weight_decay=recipe.weight_decay)
    return torch.optim.SGD(net.parameters(), recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)

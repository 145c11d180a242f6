"""Fit: the training loop, one cycle of the learning rate, in floating point or on the integer grid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.train.qnet import QNet, parameters_by_role

Tell = Callable[[int, int, float], None]


@dataclass(frozen=True)
class Pictures:
    """Labelled pictures as the integers that a private network takes, for training and for testing.

    Bytes as they are in the files, without subtracting a mean: the first layer's norm learns that. `augment`
    changes a batch of training pictures at random.
    """

    task: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    augment: Callable[[Tensor], Tensor] | None = None

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Training pictures, augmented if asked for, and their labels."""
        x = self.x[indices]
        return x if self.augment is None else self.augment(x), self.y[indices]

    def check(self, graph: Graph) -> None:
        """Raise ModelError unless the network takes these pictures."""
        value = graph.input.value
        if tuple(self.x.shape[1:]) != value.shape or int(self.x.max()) > value.high:
            shape, wanted = ("x".join(map(str, sides)) for sides in (self.x.shape[1:], value.shape))
            raise ModelError(
                f"task {self.task!r} has pictures of {shape} with numbers up to {int(self.x.max())}, "
                f"network {graph.name!r} takes {wanted} up to {value.high}: choose another"
            )


@dataclass(frozen=True)
class TrainingSchedule:
    """How long and how fast: the learning rate rises for `warm` of the steps, then falls to nothing."""

    epochs: float
    lr: float
    batch: int = 128
    decay: float = 5e-4
    warm: float = 0.3
    smoothing: float = 0.0


def fit(
    net: QNet, pictures: Pictures, schedule: TrainingSchedule, seed: int, tell: Tell | None = None
) -> None:
    """Train the net; same seed, same weights.

    In floating point: SGD with Nesterov momentum. On the grid: Adam, whose steps do not depend on how large
    the gradients of weights and of quantizer steps are.
    """
    torch.manual_seed(seed)
    per_epoch = max(1, len(pictures.x) // schedule.batch)
    steps = max(1, round(schedule.epochs * per_epoch))
    optimizer = _optimizer(net, schedule)
    cycle = torch.optim.lr_scheduler.OneCycleLR(
        optimizer,
        [group["lr"] for group in optimizer.param_groups],
        steps,
        pct_start=schedule.warm,
        cycle_momentum=False,
    )
    net.train()
    order = torch.empty(0, dtype=torch.long)
    for step in range(steps):
        if len(order) < schedule.batch:
            order = torch.randperm(len(pictures.x))
        indices, order = order[: schedule.batch], order[schedule.batch :]
        x, y = pictures.batch(indices)
        loss = functional.cross_entropy(net(x), y, label_smoothing=schedule.smoothing)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        cycle.step()
        if tell is not None:
            tell(step + 1, steps, loss.item())


def _optimizer(net: QNet, schedule: TrainingSchedule) -> torch.optim.Optimizer:
    roles = parameters_by_role(net)
    decayed = {"params": roles["weights"], "weight_decay": schedule.decay, "lr": schedule.lr}
    free = {"params": roles["rest"], "weight_decay": 0.0, "lr": schedule.lr}
    if not net.quantized:
        return torch.optim.SGD([decayed, free], schedule.lr, momentum=0.9, nesterov=True)
    return torch.optim.Adam([decayed, free, {"params": roles["steps"], "lr": schedule.lr}], schedule.lr)


@torch.no_grad()
def accuracy(net: QNet, pictures: Pictures, batch: int = 250) -> float:
    """The share of test pictures that the net, as it is, classifies rightly."""
    net.eval()
    right = 0
    for start in range(0, len(pictures.test_x), batch):
        logits = net(pictures.test_x[start : start + batch])
        right += int((logits.argmax(1) == pictures.test_y[start : start + batch]).sum())
    net.train()
    return right / len(pictures.test_x)

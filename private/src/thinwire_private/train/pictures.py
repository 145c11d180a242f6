"""Pictures: a lab task as the integers that a private network takes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire_lab.data import load_task
from thinwire_lab.data.task import Say, shift_and_flip
from thinwire_private.net.graph import Graph

AUGMENTED = ("cifar10",)


@dataclass(frozen=True)
class Pictures:
    """Bytes as they are in the files, no mean taken off: the first layer's norm learns that."""

    task: str
    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor

    def batch(self, indices: Tensor) -> tuple[Tensor, Tensor]:
        """Training pictures, shifted and mirrored where the task gains by it."""
        x = self.x[indices]
        return shift_and_flip(x) if self.task in AUGMENTED else x, self.y[indices]

    def check(self, graph: Graph) -> None:
        """Raise LabError unless the network takes these pictures."""
        value = graph.input.value
        if tuple(self.x.shape[1:]) != value.shape or int(self.x.max()) > value.high:
            shape, wanted = ("x".join(map(str, sides)) for sides in (self.x.shape[1:], value.shape))
            raise LabError(
                f"task {self.task!r} has pictures of {shape} with numbers up to {int(self.x.max())}, "
                f"network {graph.name!r} takes {wanted} up to {value.high}: choose another"
            )


def load_pictures(task: str, data: Path | None = None, say: Say = lambda _: None) -> Pictures:
    """The pictures of a lab task."""
    found = load_task(task, data, say)
    if not found.mean:
        raise LabError(f"task {task!r} has no pictures: choose digits, mnist, fashion-mnist or cifar10")
    tensors = [
        torch.from_numpy(part.copy()) for split in (found.train, found.test) for part in (split.x, split.y)
    ]
    x, y, test_x, test_y = tensors
    return Pictures(task, x, y.long(), test_x, test_y.long())

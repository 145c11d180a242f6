"""A task: one data set ready for training, how its numbers are normalised and how its result is scored."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

Array = NDArray[np.uint8]
Indices = NDArray[np.int64]

ACCURACY = "accuracy"
BITS_PER_CHARACTER = "bits per character"


@dataclass(frozen=True)
class Split:
    """Examples `x` and their targets `y`, both kept as bytes: the first axis counts examples."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Task:
    """Train and test examples of one data set.

    Images are stored as bytes in N, C, H, W order and become (x / scale - mean) / std one batch at a time, so
    that four workers on one machine share 150 MB of CIFAR-10 instead of holding 600 MB each. An empty `mean`
    means that the bytes are symbols (characters), not numbers.
    """

    name: str
    train: Split
    test: Split
    classes: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    metric: str = ACCURACY

    def with_few(self, examples: int) -> Task:
        """The same task with only the first so many examples to train on: soon overfitted."""
        return replace(self, train=Split(self.train.x[:examples], self.train.y[:examples]))

    def batch(self, split: Split, indices: Indices) -> tuple[Tensor, Tensor]:
        """The examples at `indices`, normalised, and their targets."""
        x = torch.from_numpy(split.x[indices])
        y = torch.from_numpy(split.y[indices]).long()
        if not self.mean:
            return x.long(), y
        mean = torch.tensor(self.mean).view(-1, 1, 1)
        std = torch.tensor(self.std).view(-1, 1, 1)
        return (x.float() / self.scale - mean) / std, y

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over examples, or over all characters of a text."""
        return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def score(self, mean_loss: float, share_right: float) -> float:
        """The number by which this task is judged, named by `metric`."""
        return share_right if self.metric == ACCURACY else mean_loss / math.log(2)

    def save(self, folder: Path) -> None:
        """Write the task as plain .npy files that every worker maps into memory."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self._arrays().items():
            np.save(folder / f"{name}.npy", array)
        facts = {"name": self.name, "classes": self.classes, "scale": self.scale, "metric": self.metric}
        (folder / "task.json").write_text(json.dumps({**facts, "mean": self.mean, "std": self.std}))

    def _arrays(self) -> dict[str, Array]:
        return {
            "train_x": self.train.x,
            "train_y": self.train.y,
            "test_x": self.test.x,
            "test_y": self.test.y,
        }


def open_task(folder: Path) -> Task:
    """The task that `Task.save` wrote, its arrays mapped read-only: pages are shared between workers."""

    def array(name: str) -> Any:
        return np.load(folder / f"{name}.npy", mmap_mode="r")

    facts = json.loads((folder / "task.json").read_text())
    return Task(
        name=facts["name"],
        train=Split(array("train_x"), array("train_y")),
        test=Split(array("test_x"), array("test_y")),
        classes=facts["classes"],
        scale=facts["scale"],
        mean=tuple(facts["mean"]),
        std=tuple(facts["std"]),
        metric=facts["metric"],
    )

"""A model's card: how to build it, and the shape of what it takes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thinwire_lab.models.char_transformer import CONTEXT


@dataclass(frozen=True)
class ModelCard:
    """How to build a model and what it takes: the shape of one example and the usual number of classes.

    `optimizer`: what benches train it with, "sgd" (momentum 0.9) or "adamw".
    """

    builder: Callable[[int], nn.Module]
    input_shape: tuple[int, ...]
    classes: int
    optimizer: str = "sgd"

    def new_optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        """For benches, whose steps must cost what steps cost and need not learn."""
        if self.optimizer == "adamw":
            return torch.optim.AdamW(parameters, lr=1e-3)
        return torch.optim.SGD(parameters, lr=1e-3, momentum=0.9)

    def build(self, seed: int, classes: int | None = None) -> nn.Module:
        """The model with weights drawn from `seed` alone: every worker starts with the same bits."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.builder(self.classes if classes is None else classes)

    def example(self, batch: int, seed: int = 0) -> tuple[Tensor, Tensor]:
        """Made-up inputs and targets of the right shape, for benchmarks that need no data set."""
        generator = torch.Generator().manual_seed(seed)
        if self.input_shape == (CONTEXT,):
            symbols = torch.randint(self.classes, (2, batch, CONTEXT), generator=generator)
            return symbols[0], symbols[1]
        images = torch.randn(batch, *self.input_shape, generator=generator)
        return images, torch.randint(self.classes, (batch,), generator=generator)

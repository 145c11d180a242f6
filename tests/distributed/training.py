"""Small trainings for the ranks: nets, batches that differ by rank and step, and a plain loop."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

SMALL_BUCKETS_MB = 0.01  # about 2600 floats: every net here then has several buckets
BATCH = 8


def mlp(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """Two layers that are compressed by default, biases and a last layer that are not."""
    torch.manual_seed(7)
    layers = nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 65), nn.ReLU(), nn.Linear(65, 10)
    return nn.Sequential(*layers).to(dtype)


def normed() -> nn.Module:
    """With running means, which DDP broadcasts in every forward pass."""
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 65))


def one_layer() -> nn.Module:
    """15 elements: odd, and a multiple of 3 and 5, so that any padding would move the shards of a ring."""
    torch.manual_seed(7)
    return nn.Linear(4, 3)


def convolutions() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(
        nn.Conv2d(3, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 24, 3),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(24, 10),
    )


def batch(step: int, *shape: int, dtype: torch.dtype = torch.float32, rank: int | None = None) -> Tensor:
    rank = dist.get_rank() if rank is None else rank
    generator = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(BATCH, *shape, generator=generator).to(dtype)


def wrap(net: nn.Module, codec: Any, ddp: dict[str, Any] | None = None, **options: Any) -> Wrapped:
    """A net under DDP; with a codec its gradients are compressed, with None they are not."""
    model = DistributedDataParallel(net, **{"bucket_cap_mb": SMALL_BUCKETS_MB, **(ddp or {})})
    compressor = None if codec is None else tw.compress(model, codec, **options)
    if compressor is not None:
        compressor.check_optimizer(torch.optim.SGD(net.parameters(), lr=0.1))  # what `descend` does
    return Wrapped(model, compressor)


class Wrapped:
    """A DDP model and its compressor, if it has one."""

    def __init__(self, model: DistributedDataParallel, compressor: tw.Compressor | None) -> None:
        self.model, self.compressor = model, compressor

    def __enter__(self) -> Wrapped:
        return self

    def __exit__(self, *_: object) -> None:
        if self.compressor is not None:
            self.compressor.close()

    def parameters(self) -> Tensor:
        return torch.cat([p.detach().double().flatten() for p in self.model.parameters()])


def descend(model: nn.Module, rate: float = 0.1) -> None:
    """One step of plain gradient descent, and the gradients are gone."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.grad is not None:
                parameter.sub_(rate * parameter.grad)
    model.zero_grad()


def loss_of(output: Tensor) -> Tensor:
    return (output.float() - 1).square().mean()


def fit(
    model: nn.Module, steps: int, start: int = 0, make_batch: Callable[[int], Tensor] | None = None
) -> list[float]:
    """Trains from step `start` on; gives the losses of this rank."""
    dtype = next(model.parameters()).dtype
    losses = []
    for step in range(start, start + steps):
        loss = loss_of(model(make_batch(step) if make_batch else batch(step, 20, dtype=dtype)))
        loss.backward()
        descend(model)
        losses.append(loss.item())
    return losses


@contextlib.contextmanager
def parts_of(numel: int) -> Iterator[None]:
    """Lanes are cut into parts of about `numel` elements, as lanes of millions are."""
    from thinwire.plans import lane

    before, lane.PART_NUMEL = lane.PART_NUMEL, numel
    try:
        yield
    finally:
        lane.PART_NUMEL = before


@contextlib.contextmanager
def few_steps() -> Iterator[None]:
    """Auto decides after some 20 steps: links may be so slow that busy cores do not matter."""
    from thinwire.auto import autotuner as autotuner

    before = autotuner.WARM_UP, autotuner.SWITCH_STEPS, autotuner.TIMED_STEPS
    autotuner.WARM_UP, autotuner.SWITCH_STEPS, autotuner.TIMED_STEPS = 2, 1, 2
    try:
        yield
    finally:
        autotuner.WARM_UP, autotuner.SWITCH_STEPS, autotuner.TIMED_STEPS = before

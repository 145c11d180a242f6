"""Augmentation for small pictures: each is shifted by up to four pixels and mirrored half of the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from thinwire_lab.data.task import Indices

SHIFT = 4


def shift_and_flip(images: Tensor) -> Tensor:
    """Random crops of the zero-padded images, mirrored with probability 1/2; draws from torch's generator.

    The row (column) read for pixel y (x) of image b is y + dy[b] (x + dx[b], or its mirror image).
    """
    batch, _, height, width = images.shape
    padded = functional.pad(images, (SHIFT,) * 4)
    dy, dx = torch.randint(2 * SHIFT + 1, (2, batch, 1))
    rows = torch.arange(height) + dy
    columns = torch.arange(width) + dx
    columns = torch.where(torch.rand(batch, 1) < 0.5, columns, columns.flip(1))
    picked = padded.gather(2, rows[:, None, :, None].expand(-1, padded.shape[1], -1, padded.shape[3]))
    return picked.gather(3, columns[:, None, None, :].expand(-1, padded.shape[1], height, -1))


@dataclass(frozen=True)
class ExampleOrder:
    """Every epoch is shuffled anew and dealt out to the workers; the rest that fills no batch is left.

    >>> order = ExampleOrder(num_examples=4, batch=1, workers=2, seed=0)
    >>> [len(batch) for batch in order.batches(rank=1, first=0, last=2)]
    [1, 1]
    """

    num_examples: int
    batch: int
    workers: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of all workers in one epoch."""
        return self.num_examples // (self.batch * self.workers)

    def batches(self, rank: int, first: int, last: int) -> Iterator[Indices]:
        """The indices for worker `rank` at steps first, ..., last - 1: the same wherever one starts."""
        shuffled, shuffled_epoch = self._shuffled(0), 0
        for step in range(first, last):
            epoch, place = divmod(step, self.steps_per_epoch)
            if epoch != shuffled_epoch:
                shuffled, shuffled_epoch = self._shuffled(epoch), epoch
            start = (place * self.workers + rank) * self.batch
            yield shuffled[start : start + self.batch]

    def _shuffled(self, epoch: int) -> Indices:
        return np.random.default_rng([self.seed, epoch]).permutation(self.num_examples)

"""A trainer of N virtual workers in one process: one net, N gradients, N compressors on a thread group."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

import thinwire as tw
from thinwire.errors import LabError, PeerError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire_lab.data import Task
from thinwire_lab.data.task import Indices
from thinwire_lab.run.checkpoint import Checkpoint
from thinwire_lab.run.codec_choice import read_codec_choice
from thinwire_lab.run.optimizer import make_optimizer
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.run.reference_losses import ReferenceLosses
from thinwire_lab.run.replicas import Draw, Replicas, trained
from thinwire_lab.run.training import Training

CPU = torch.device("cpu")
TIMEOUT_S = 3600.0  # workers wait for each other while the others' gradients are computed


class VirtualTrainer(Training):
    """Does what N `Trainer`s in N processes do: parameters are equal on all ranks, so one net stands for all.

    In every step:

    1. each worker's gradient is computed at the same parameters, from its own examples and seed
    2. each goes through a compressor of its own, which meet in a thread group: the engine's line as ever
    3. worker 0's means, which have the same bits as all others', are given to the one optimizer

    Merges by integers and by gathering give the bits of processes with one thread each; float sums go in rank
    order, where a ring adds in another.
    """

    rank = 0
    waited_s = 0.0  # nothing travels

    def __init__(self, recipe: Recipe, task: Task, reference: ReferenceLosses | None = None) -> None:
        super().__init__(recipe, task, reference)
        self.compressors = make_compressors(self.net, recipe, self.num_steps)
        self.compressor: tw.Compressor = self.compressors[0]
        self.optimizer = make_optimizer(self.net, recipe, self.compressor)
        for other in self.compressors[1:]:
            other.follow(self.compressor)
        self.replicas = Replicas(self.net, task, min(recipe.workers, os.cpu_count() or 1))
        self._means: list[Tensor] = []  # worker 0's gradients, then the means

    def steps(self, first: int, last: int) -> Iterator[float]:
        """Trains from step to step; gives the mean loss of all workers after each."""
        batches = [self.order.batches(rank, first, last) for rank in range(self.recipe.workers)]
        for indices in zip(*batches, strict=True):
            yield self.train_step(indices)

    def train_step(self, indices: Sequence[Indices]) -> float:
        """One step of all workers."""
        lr = self.recipe.lr_at(self.step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        losses = self.replicas.gradients(
            [self._draw(rank, own) for rank, own in enumerate(indices)], self._send
        )
        self._wait()
        self._give(self._means.pop())
        self.optimizer.step()
        self.step += 1
        return sum(losses) / len(losses)

    def checkpoint(self) -> Checkpoint:
        raise LabError("virtual workers cannot be saved: leave out --checkpoint, or take --network loopback")

    def close(self) -> None:
        """Ends all threads."""
        self.replicas.close()
        for compressor in self.compressors:
            compressor.close()

    def _draw(self, rank: int, indices: Indices) -> Draw:
        return Draw(indices, self.seed_of(rank), self.recipe.augment)

    def _send(self, rank: int, loss: float, flat: Tensor) -> None:
        """A worker's gradient is there: its compressor hears of the loss, and exchanges."""
        compressor = self.compressors[rank]
        reference = self.reference.at(self.step + 1)
        lr = self.optimizer.param_groups[0]["lr"]
        compressor.observe(loss, lr=lr, epoch=self.epoch, reference=reference)
        if rank == 0:
            self._means.append(flat)
        parameters: list[Tensor] = list(trained(self.net))
        compressor.exchange(flat, parameters, True, lambda: None)

    def _wait(self) -> None:
        """All means are there; of several errors the one that is no consequence of another is raised."""
        errors: list[Exception] = []
        for compressor in self.compressors:
            try:
                compressor.wait()
            except Exception as error:
                errors.append(error)
        if errors:
            raise min(errors, key=_is_consequence)

    def _give(self, means: Tensor) -> None:
        """The means to the parameters."""
        parameters = trained(self.net)
        sizes = [parameter.numel() for parameter in parameters]
        for parameter, mean in zip(parameters, torch.split(means, sizes), strict=True):
            parameter.grad = mean.view_as(parameter)


def make_compressors(net: nn.Module, recipe: Recipe, total_steps: int) -> list[tw.Compressor]:
    """A compressor for every virtual worker, made at the same time: they compare their plans."""
    choice = read_codec_choice(recipe.codec)
    if choice.is_auto:
        raise LabError('codec "auto" measures a link, and virtual workers have none: name a codec')
    options: dict[str, Any] = choice.options()

    def made(group: ThreadGroup) -> tw.Compressor:
        policy = choice.policy(total_steps)
        return tw.Compressor(policy, group, CPU, net, seed=recipe.seed, check_every=0, **options)

    return run_ranks(recipe.workers, made, TIMEOUT_S)


def _is_consequence(error: Exception) -> bool:
    return isinstance(error, PeerError)

"""A trainer of N virtual workers in one process: one net, N gradients, N compressors on a thread group."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import thinwire as tw
from thinwire.errors import LabError, PeerError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire_lab.data import Task
from thinwire_lab.data.task import Indices, shift_and_flip
from thinwire_lab.run.checkpoint import Checkpoint
from thinwire_lab.run.recipe import Recipe, read_codec_choice
from thinwire_lab.run.trainer import ReferenceLosses, Training, make_optimizer

Done = Callable[[int, float, Tensor], None]  # rank, loss, gradients end to end
CPU = torch.device("cpu")
TIMEOUT_S = 3600.0  # workers wait for each other while the others' gradients are computed


@dataclass(frozen=True)
class Draw:
    """What one worker computes in a step: its examples, and the seed of all that is drawn meanwhile."""

    indices: Indices
    seed: int
    augment: bool


class Replicas:
    """Computes the gradients of N workers at the same parameters, on as many threads as there are replicas.

    Every worker draws from torch's one generator, after setting its seed: a lock keeps others away while it
    draws, for the whole forward pass if that draws too (dropout). The running statistics of the net end as
    worker 0 leaves them, which is what DDP has.
    """

    def __init__(self, net: nn.Module, task: Task, count: int) -> None:
        self.net, self.task = net, task
        self._nets = [net, *(_sharing(net) for _ in range(count - 1))]
        self._pool = ThreadPoolExecutor(count, thread_name_prefix="replica")
        self._drawing = threading.Lock()
        self._forward_draws: bool | None = None  # not known before the first forward pass

    def gradients(self, draws: Sequence[Draw], done: Done) -> list[float]:
        """The losses of all workers; `done` gets every worker's gradients, on the thread that made them."""
        jobs = [self._pool.submit(self._share, index, draws, done) for index in range(len(self._nets))]
        shares = [job.result() for job in jobs]
        return [shares[rank % len(shares)][rank // len(shares)] for rank in range(len(draws))]

    def close(self) -> None:
        """Ends its threads."""
        self._pool.shutdown()

    def _share(self, index: int, draws: Sequence[Draw], done: Done) -> list[float]:
        """Every worker whose turn it is on this replica; the first replica is the net itself."""
        net, losses, first = self._nets[index], [], []
        for rank in range(index, len(draws), len(self._nets)):
            loss, flat = self._computed(net, draws[rank])
            losses.append(loss)
            if rank == 0:
                first = [buffer.clone() for buffer in net.buffers()]
            done(rank, loss, flat)
        for buffer, kept in zip(net.buffers(), first, strict=False):
            buffer.copy_(kept)
        return losses

    def _computed(self, net: nn.Module, draw: Draw) -> tuple[float, Tensor]:
        """A worker's loss, and its gradients end to end."""
        net.zero_grad()
        x, y = self.task.batch(self.task.train, draw.indices)
        loss = self.task.loss(self._forward(net, x, draw), y)
        torch.autograd.backward(loss)
        parts = [_gradient(parameter).flatten() for parameter in trained(net)]
        return loss.item(), torch.cat(parts)

    def _forward(self, net: nn.Module, x: Tensor, draw: Draw) -> Tensor:
        with self._drawing:
            torch.manual_seed(draw.seed)
            x = shift_and_flip(x) if draw.augment else x
            if self._forward_draws is not False:
                before = torch.get_rng_state()
                logits: Tensor = net(x)
                self._forward_draws = not torch.equal(before, torch.get_rng_state())
                return logits
        quiet: Tensor = net(x)
        return quiet


def trained(net: nn.Module) -> list[nn.Parameter]:
    """The parameters that have gradients, in order."""
    return [parameter for parameter in net.parameters() if parameter.requires_grad]


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _sharing(net: nn.Module) -> nn.Module:
    """A copy with gradients and statistics of its own and the same parameters."""
    twin = copy.deepcopy(net)
    for own, shared in zip(twin.parameters(), net.parameters(), strict=True):
        own.data = shared.data
    return twin


class VirtualTrainer(Training):
    """Does what N `Trainer`s in N processes do: parameters are equal on all ranks, so one net stands for all.

    In every step:

    1. each worker's gradient is computed at the same parameters, from its own examples and seed
    2. each goes through a compressor of its own, which meet in a thread group
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
        compressor.queue.exchange(flat, parameters, True, lambda: None)

    def _wait(self) -> None:
        """Waits for all means; of several errors it raises the one that caused the others."""
        errors: list[Exception] = []
        for compressor in self.compressors:
            try:
                compressor.wait()
            except Exception as error:
                errors.append(error)
        if errors:
            raise min(errors, key=_is_consequence)

    def _give(self, means: Tensor) -> None:
        """Hands the means to the parameters."""
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

"""Replicas: copies of a net with the same parameters: threads compute gradients of several workers."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from thinwire_lab.data import Task
from thinwire_lab.data.augment import shift_and_flip
from thinwire_lab.data.task import Indices


@dataclass(frozen=True)
class Draw:
    """What one worker computes in a step: its examples, and the seed of all that is drawn meanwhile."""

    indices: Indices
    seed: int
    augment: bool


Done = Callable[[int, float, Tensor], None]  # rank, loss, gradients end to end


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

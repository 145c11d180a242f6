"""A trainer of N virtual workers that make local steps in one process: N nets, exchanged now and then."""

from __future__ import annotations

import copy
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

import thinwire as tw
from thinwire.errors import LabError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire_lab.data import Task
from thinwire_lab.data.task import Indices, shift_and_flip
from thinwire_lab.run.checkpoint import Checkpoint
from thinwire_lab.run.ddp_exchange import local_steps
from thinwire_lab.run.recipe import Recipe, read_codec_choice
from thinwire_lab.run.trainer import Training, make_optimizer
from thinwire_lab.run.virtual_trainer import TIMEOUT_S


class VirtualLocalTrainer(Training):
    """Does what N `Trainer`s with local steps do in N processes.

    1. every worker makes a step on its own net, with its own optimizer, from its own examples and seed
    2. at the end of a round their exchanges meet in a thread group, as those of processes meet over a network

    `net` is worker 0's: the same as all others' at the end of a round.
    """

    rank = 0
    waited_s = 0.0  # nothing travels

    def __init__(self, recipe: Recipe, task: Task) -> None:
        super().__init__(recipe, task, None)
        self.nets = [self.net, *(copy.deepcopy(self.net) for _ in range(recipe.workers - 1))]
        choice = read_codec_choice(recipe.codec)

        def made(group: ThreadGroup) -> tw.DiLoCo:
            net = self.nets[group.rank]
            return local_steps(net, choice, recipe.seed, self.num_steps, group=group)

        self.locals = run_ranks(recipe.workers, made, TIMEOUT_S)
        self.optimizers = [make_optimizer(net, recipe) for net in self.nets]
        self._pool = ThreadPoolExecutor(min(recipe.workers, os.cpu_count() or 1))
        self._drawing = threading.Lock()
        self._draws = any(isinstance(module, torch.nn.Dropout) for module in self.net.modules())

    def steps(self, first: int, last: int) -> Iterator[float]:
        """Trains from step to step; gives the mean loss of all workers after each."""
        batches = [self.order.batches(rank, first, last) for rank in range(self.recipe.workers)]
        for indices in zip(*batches, strict=True):
            yield self.train_step(indices)

    def train_step(self, indices: Sequence[Indices]) -> float:
        """A local step of all workers, and an exchange if a round ends with it."""
        losses = list(self._pool.map(self._local_step, range(len(indices)), indices))
        self.step += 1
        self._together(tw.DiLoCo.step)
        return sum(losses) / len(losses)

    def settle(self) -> None:
        self._together(tw.DiLoCo.sync)

    def checkpoint(self) -> Checkpoint:
        raise LabError("virtual workers cannot be saved: leave out --checkpoint, or take --network loopback")

    def close(self) -> None:
        """Ends all threads."""
        self._pool.shutdown()
        for local in self.locals:
            local.close()

    def _local_step(self, rank: int, indices: Indices) -> float:
        net, optimizer = self.nets[rank], self.optimizers[rank]
        for group in optimizer.param_groups:
            group["lr"] = self.recipe.lr_at(self.step, self.num_steps)
        x, y = self.task.batch(self.task.train, indices)
        optimizer.zero_grad()
        if self.recipe.augment or self._draws:
            with self._drawing:  # torch has one generator
                torch.manual_seed(self.seed_of(rank))
                loss = self.task.loss(net(shift_and_flip(x) if self.recipe.augment else x), y)
        else:
            loss = self.task.loss(net(x), y)
        torch.autograd.backward(loss)
        optimizer.step()
        return loss.item()

    def _together(self, act: object) -> None:
        """One call of every worker, each on a thread of its own: exchanges wait for one another."""
        errors: list[Exception] = []

        def body(local: tw.DiLoCo) -> None:
            try:
                act(local)  # type: ignore[operator]
            except Exception as error:
                errors.append(error)

        if not self._meets(act):
            for local in self.locals:
                body(local)
        else:
            threads = [threading.Thread(target=body, args=(local,)) for local in self.locals]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        if errors:
            raise errors[0]

    def _meets(self, act: object) -> bool:
        """Whether the call exchanges anything; most do not, and need no threads."""
        return act is not tw.DiLoCo.step or self.step % self.locals[0].every == 0

"""A trainer: one rank's model, optimizer and share of the data, and the step it is at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor, nn

from thinwire.errors import LabError
from thinwire_lab.data import Task
from thinwire_lab.data.augment import shift_and_flip
from thinwire_lab.data.task import Indices
from thinwire_lab.run.checkpoint import Checkpoint, check_same_run, read_checkpoint
from thinwire_lab.run.ddp_exchange import HookedModel
from thinwire_lab.run.gradient_wait import GradientWait
from thinwire_lab.run.optimizer import make_optimizer
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.run.reference_losses import ReferenceLosses
from thinwire_lab.run.training import Training

Hook = Callable[[nn.Module], HookedModel]


class Trainer(Training):
    """Trains by a recipe; what it draws follows from seed, step and rank alone.

    `hook` lets gradients travel while the backward pass runs; without one this rank is alone.
    """

    def __init__(
        self,
        recipe: Recipe,
        task: Task,
        rank: int = 0,
        hook: Hook | None = None,
        reference: ReferenceLosses | None = None,
    ) -> None:
        super().__init__(recipe, task, reference)
        self.rank = rank
        self.wait = GradientWait(self.net)
        hooked = None if hook is None else hook(self.net)
        self.model: nn.Module = self.net if hooked is None else hooked.model
        self.compressor = None if hooked is None else hooked.compressor
        self.optimizer = make_optimizer(self.net, recipe, self.compressor)

    @property
    def waited_s(self) -> float:
        """Seconds of the last step in which there was nothing left to do but to wait for gradients."""
        return self.wait.seconds

    def steps(self, first: int, last: int) -> Iterator[float]:
        """Trains from step to step; gives this rank's loss after each."""
        for indices in self.order.batches(self.rank, first, last):
            yield self.train_step(indices)

    def train_step(self, indices: Indices) -> float:
        """Backward pass and update, and on to the next step; gives this rank's loss."""
        loss = self.backward(indices)
        self.update()
        return loss

    def backward(self, indices: Indices) -> float:
        """Forward and backward pass (gradients travel meanwhile); gives this rank's loss.

        The control hears of the loss before the backward pass, so that this very step goes by it.
        """
        torch.manual_seed(self.seed_of(self.rank))
        lr = self.recipe.lr_at(self.step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        x, y = self.task.batch(self.task.train, indices)
        loss = self.task.loss(self.model(shift_and_flip(x) if self.recipe.augment else x), y)
        self._observe(loss, lr)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.wait.end()
        return loss.item()

    def update(self) -> None:
        """Let the optimizer use the gradients; this ends the step."""
        self.optimizer.step()
        self.step += 1

    def _observe(self, loss: Tensor, lr: float) -> None:
        """Tell a control how training goes, beside what the run it is compared with had lost at this step."""
        if self.compressor is not None:
            reference = self.reference.at(self.step + 1)
            self.compressor.observe(loss, lr=lr, epoch=self.epoch, reference=reference)

    def checkpoint(self) -> Checkpoint:
        """The state of the run; gathering the compressor's is collective."""
        state = None if self.compressor is None else self.compressor.state_dict(gather=True)
        return Checkpoint(self.recipe, self.step, self.net.state_dict(), self.optimizer.state_dict(), state)

    def close(self) -> None:
        """Ends the compressor's thread."""
        if self.compressor is not None:
            self.compressor.close()

    def load(self, path: Path) -> None:
        """Go on from a checkpoint.

        1. run one throw-away step, because DDP re-arranges its buckets after the first one and sums of floats
           depend on their place in a bucket;  2. load model, optimizer and compressor;  3. set the step.
        """
        checkpoint = read_checkpoint(path)
        check_same_run(path, checkpoint, self.recipe)
        self.train_step(next(self.order.batches(self.rank, 0, 1)))
        try:
            self.net.load_state_dict(checkpoint.model)
            self.optimizer.load_state_dict(checkpoint.optimizer)
        except (RuntimeError, ValueError) as error:
            raise LabError(f"checkpoint {path} does not fit model {self.recipe.model!r}: {error}") from error
        if self.compressor is not None and checkpoint.compressor is not None:
            self.compressor.load_state_dict(checkpoint.compressor)
        self.step = checkpoint.step

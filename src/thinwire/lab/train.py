"""A worker: one process of a training run, started as `python -m thinwire.lab.train JOB_FILE`."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from thinwire import Compressor
from thinwire.errors import LabError, ThinwireError
from thinwire.lab.asked import DDP_FP16
from thinwire.lab.augment import shift_and_flip
from thinwire.lab.checkpoint import Checkpoint, check_same_run, read_checkpoint, write_checkpoint
from thinwire.lab.data import Task, open_task
from thinwire.lab.data.task import Indices
from thinwire.lab.evaluation import evaluate
from thinwire.lab.hook import attach
from thinwire.lab.job import Job, read_job
from thinwire.lab.meter import CompressorMeter, ComputedMeter, InterfaceMeter, Meter, ring_bytes
from thinwire.lab.models import fit_check
from thinwire.lab.order import Order

STORE_FILE = "rendezvous"
PEER_TIMEOUT = timedelta(
    minutes=10
)  # a step over a very slow link is long; a dead peer is noticed at once anyway
PROGRESS_ROWS = 200
WARM_UP_STEPS = 3  # not timed: buckets are rebuilt, buffers are allocated
CRASHED, FAILED = 1, 2  # exit codes


class Worker:
    """One rank of a run: model, optimizer, exchange, its share of the data, and the clock."""

    def __init__(self, job: Job, rank: int) -> None:
        self.job, self.rank, self.recipe = job, rank, job.recipe
        self.task: Task = open_task(Path(job.task_folder))
        card = fit_check(self.recipe.model, self.task.name, self.task.train.x.shape[1:])
        self.net: nn.Module = card.build(self.recipe.seed, self.task.classes)
        self.hooked = attach(self.net, self.recipe.codec, self.recipe.seed, job.link_rate)
        self.optimizer = _optimizer(self.net, job, self.hooked.compressor)
        self.num_steps = self.recipe.num_steps(len(self.task.train))
        self.order = Order(len(self.task.train), self.recipe.batch, self.recipe.workers, self.recipe.seed)
        self.meter = _meter(job, self)
        self.step = 0
        self.seconds = 0.0
        self.timed_seconds: list[float] = []

    # one step

    def train_step(self, indices: Indices) -> float:
        """Forward, backward (gradients travel meanwhile), update; gives this worker's loss.

        The control hears of the loss before the backward pass, so that this very step goes by it.
        """
        torch.manual_seed((self.recipe.seed << 32) + self.step * self.recipe.workers + self.rank)
        lr = self.recipe.lr_at(self.step, self.num_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        x, y = self.task.batch(self.task.train, indices)
        loss = self.task.loss(self.hooked.model(shift_and_flip(x) if self.recipe.augment else x), y)
        self.observe(loss, lr)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        self.optimizer.step()
        return loss.item()

    def observe(self, loss: Tensor, lr: float) -> None:
        """Tell a control how training goes, beside what the run it is compared with had lost at this step."""
        if self.hooked.compressor is not None:
            epoch = self.step / self.order.steps_per_epoch
            self.hooked.compressor.observe(loss, lr=lr, epoch=epoch, reference=self.reference())

    def reference(self) -> float | None:
        """The loss at this step of the run that this one is compared with."""
        if not self.job.reference:
            return None
        steps, losses = zip(*self.job.reference, strict=True)
        return float(np.interp(self.step + 1, steps, losses))

    # the whole run

    def run(self) -> None:
        """Train from the current step to the last one; report rows on the way and the result at the end."""
        first, last = self.step, min(self.num_steps, self.job.stop_at or self.num_steps)
        stops = set(_marks(self.num_steps, self.recipe.evaluations)) | {last}
        shown = set(_marks(self.num_steps, PROGRESS_ROWS))
        losses: list[float] = []
        dist.barrier()
        self.meter.resume()
        for indices in self.order.batches(self.rank, first, last):
            start = time.perf_counter()
            losses.append(self.train_step(indices))
            self._count(time.perf_counter() - start, self.step - first)
            if self.step in shown:
                self.say("step", loss=losses[-1], **self.strength())
            if self.step in stops:
                with self.aside():
                    self.evaluate(first, losses)
                losses.clear()
            if self._checkpoint_due(last):
                with self.aside():
                    self.save()
        self.finish(first)

    def strength(self) -> dict[str, float]:
        """How strong the codec is now: its share and, if it drops a part of the numbers, theta."""
        compressor = self.hooked.compressor
        if compressor is None or (compressor.plan.control is None and compressor.theta is None):
            return {}
        theta = {} if compressor.theta is None else {"theta": compressor.theta}
        return {"share": compressor.share, **theta}

    def _count(self, seconds: float, steps_before: int) -> None:
        self.step += 1
        self.seconds += seconds
        if steps_before >= WARM_UP_STEPS:
            self.timed_seconds.append(seconds)

    def _checkpoint_due(self, last: int) -> bool:
        every = self.job.checkpoint_every
        due = self.step == last or (every is not None and self.step % every == 0)
        return self.job.checkpoint is not None and due

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Work that is not training: it is neither timed nor counted; all ranks leave it together."""
        self.meter.pause()
        yield
        dist.barrier()
        self.meter.resume()

    def evaluate(self, first: int, losses: list[float]) -> None:
        """Score the model on the test set and say how far the run is."""
        scores = evaluate(self.net, self.task, self.rank, self.recipe.workers, losses)
        self.say("evaluation", **vars(scores), bytes=self.meter.sent_bytes(self.step - first))

    # stopping and going on

    def save(self) -> None:
        """Write a checkpoint: gathering the compressor's state is collective, writing is for rank 0."""
        compressor = self.hooked.compressor
        state = None if compressor is None else compressor.state_dict(gather=True)
        if self.rank == 0 and self.job.checkpoint is not None:
            checkpoint = Checkpoint(
                self.recipe, self.step, self.net.state_dict(), self.optimizer.state_dict(), state
            )
            write_checkpoint(Path(self.job.checkpoint), checkpoint)

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
        if self.hooked.compressor is not None and checkpoint.compressor is not None:
            self.hooked.compressor.load_state_dict(checkpoint.compressor)
        self.step = checkpoint.step

    # telling the launcher

    def say(self, row: str, **values: Any) -> None:
        """One JSON row on standard output; only rank 0 speaks."""
        if self.rank == 0:
            place = {
                "step": self.step,
                "epoch": self.step / self.order.steps_per_epoch,
                "seconds": self.seconds,
            }
            print(json.dumps({"row": row, **place, **values}), flush=True)

    def finish(self, first: int) -> None:
        """Check that all ranks hold the same parameters and report the run as a whole."""
        steps = self.step - first
        sent = torch.tensor([self.meter.sent_bytes(steps)], dtype=torch.float64)
        dist.all_reduce(sent)
        digest = self._agreed_digest()
        compressor = self.hooked.compressor
        report = None if compressor is None else compressor.report().to_dict()
        timed = self.timed_seconds or [self.seconds / max(1, steps)]
        self.say(
            "result",
            steps=steps,
            step_ms=1e3 * sum(timed) / len(timed),
            bytes_per_step=sent.item() / self.recipe.workers / max(1, steps),
            bytes_source=self.meter.source,
            dense_bytes_per_step=ring_bytes(4 * _numel(self.net), self.recipe.workers),
            parameters=digest,
            report=report,
        )

    def _agreed_digest(self) -> str:
        digest = hashlib.sha256()
        for parameter in self.net.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        mine = torch.tensor(list(digest.digest()), dtype=torch.uint8)
        digests = [torch.empty_like(mine) for _ in range(self.recipe.workers)]
        dist.all_gather(digests, mine)
        for rank, other in enumerate(digests):
            if not torch.equal(other, digests[0]):
                raise LabError(
                    f"worker {rank} ended with other parameters than worker 0: please report this as a bug"
                )
        return digest.hexdigest()


def _marks(num_steps: int, count: int) -> Iterator[int]:
    """At most `count` steps, spread evenly, the last one included."""
    return (-(-num_steps * k // count) for k in range(1, count + 1))


def _optimizer(net: nn.Module, job: Job, compressor: Compressor | None) -> torch.optim.Optimizer:
    """The recipe's optimizer; SGD leaves momentum to the compressor where its memory applies it (dgc)."""
    recipe = job.recipe
    groups: Any = list(net.parameters())
    optimizer: torch.optim.Optimizer
    if recipe.optimizer == "adam":
        optimizer = torch.optim.Adam(groups, recipe.lr, weight_decay=recipe.weight_decay)
    else:
        if compressor is not None:
            groups = compressor.param_groups(groups, momentum=recipe.momentum)
        optimizer = torch.optim.SGD(groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
    if compressor is not None:
        compressor.check_optimizer(optimizer)
    return optimizer


def _meter(job: Job, worker: Worker) -> Meter:
    if job.counters:
        return InterfaceMeter()
    if worker.hooked.compressor is not None:
        return CompressorMeter(worker.hooked.compressor)
    element_bytes = 2 if job.recipe.codec == DDP_FP16 else 4
    return ComputedMeter(element_bytes * _numel(worker.net), job.recipe.workers)


def _numel(net: nn.Module) -> int:
    return sum(parameter.numel() for parameter in net.parameters())


def _end_with_launcher() -> None:
    """Exit as soon as the launcher is gone: it holds the other end of standard input."""

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be held while the interpreter shuts down
            pass
        os._exit(FAILED)

    threading.Thread(target=wait, daemon=True).start()


def work(job_file: Path) -> None:
    """Join the group, do the job, leave the group."""
    job, rank = read_job(job_file), int(os.environ["RANK"])
    torch.set_num_threads(1)
    store = f"file://{job_file.resolve().parent / STORE_FILE}"
    dist.init_process_group("gloo", store, PEER_TIMEOUT, rank=rank, world_size=job.recipe.workers)
    worker = Worker(job, rank)
    if job.resume is not None:
        worker.load(Path(job.resume))
    worker.run()
    if worker.hooked.compressor is not None:
        worker.hooked.compressor.close()
    dist.destroy_process_group()


def main() -> None:
    """Run the job; a mistake of the user becomes one sentence for the launcher, a bug a traceback.

    The traceback goes as a row of its own: what libraries print while the process ends would bury it.
    """
    _end_with_launcher()
    try:
        work(Path(sys.argv[1]))
    except ThinwireError as error:
        _leave(FAILED, {"row": "error", "message": str(error)})
    except Exception:
        _leave(CRASHED, {"row": "crash", "lines": traceback.format_exc().splitlines()})
    _leave(0)


def _leave(code: int, row: dict[str, Any] | None = None) -> NoReturn:
    """End the process at once, without taking the interpreter down.

    On a busy machine a plain DDP worker was once aborted after its work was done ("terminate called without
    an active exception"): as it seems, a thread of torch or gloo met the interpreter's shut-down.
    """
    if row is not None:
        print(json.dumps(row))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()

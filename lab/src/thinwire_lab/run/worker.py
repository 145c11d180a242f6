"""A worker: one process of a training run, started as `python -m thinwire_lab.run.worker JOB_FILE`."""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import torch

from thinwire.errors import ThinwireError
from thinwire_lab.data import open_task
from thinwire_lab.net.workers import end_process, join, leave
from thinwire_lab.run.checkpoint import write_checkpoint
from thinwire_lab.run.ddp_exchange import attach
from thinwire_lab.run.launch import TrainingJob, read_training_job
from thinwire_lab.run.local_trainer import VirtualLocalTrainer
from thinwire_lab.run.observers import (
    ByteMeter,
    CompressorMeter,
    GradientHistograms,
    Nobody,
    Peers,
    Processes,
    StepStopwatch,
    TotalMeter,
    agreed_digest,
    evaluate,
    meter_for,
    ring_bytes,
)
from thinwire_lab.run.recipe import read_codec_choice
from thinwire_lab.run.sharded_trainer import VirtualShardedTrainer
from thinwire_lab.run.trainer import Trainer
from thinwire_lab.run.virtual_trainer import VirtualTrainer

PROGRESS_ROWS = 200  # each has the losses of all steps since the one before
HISTOGRAM_ROWS = 8
CRASHED, FAILED = 1, 2  # exit codes


AnyTrainer = Trainer | VirtualTrainer | VirtualLocalTrainer | VirtualShardedTrainer


class TrainingWorker:
    """Trains by a job, scores and saves the model on the way, and tells the launcher in rows."""

    def __init__(
        self,
        job: TrainingJob,
        trainer: AnyTrainer,
        meter: ByteMeter,
        peers: Peers,
    ) -> None:
        self.job, self.trainer, self.meter, self.peers = job, trainer, meter, peers
        self.times = StepStopwatch()

    def run(self) -> None:
        """Train from the current step to the last one; report rows on the way and the result at the end."""
        trainer = self.trainer
        first, last = trainer.step, min(trainer.num_steps, self.job.stop_at or trainer.num_steps)
        stops = {*marks(trainer.num_steps, self.job.recipe.evaluations), last}
        shown = {*marks(trainer.num_steps, PROGRESS_ROWS), last}
        losses: list[float] = []
        untold: list[float] = []
        looks = {1, *marks(trainer.num_steps, HISTOGRAM_ROWS)} if trainer.rank == 0 else ()
        histograms = GradientHistograms(trainer.net, looks, now=lambda: trainer.step + 1)
        self.peers.meet()
        self.meter.resume()
        for loss, seconds in timed(trainer.steps(first, last)):
            losses.append(loss)
            self.times.add(seconds, trainer.waited_s)
            untold.append(float(f"{loss:.5g}"))
            if trainer.step in shown:
                self.say("step", loss=losses[-1], losses=untold, **trainer.level())
                untold.clear()
            if found := histograms.take():
                self.say("histograms", layers=found)
            if trainer.step == last:
                trainer.settle()
            if trainer.step in stops:
                with self.aside():
                    self.evaluate(losses)
                losses.clear()
            if self._checkpoint_due(last):
                with self.aside():
                    self.save()
        self.finish()

    def _checkpoint_due(self, last: int) -> bool:
        every, step = self.job.checkpoint_every, self.trainer.step
        due = step == last or (every is not None and step % every == 0)
        return self.job.checkpoint is not None and due

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Work that is not training: it is neither timed nor counted; all ranks leave it together."""
        self.meter.pause()
        yield
        self.peers.meet()
        self.meter.resume()

    def evaluate(self, losses: list[float]) -> None:
        """Score the model on the test set and say how far the run is."""
        trainer = self.trainer
        scores = evaluate(trainer.net, trainer.task, self.peers, losses)
        sent = self.meter.sent_bytes(self.times.num_steps)
        compressor = trainer.compressor
        scalars = {} if compressor is None else compressor.report().scalars()
        self.say("evaluation", **vars(scores), bytes=sent, scalars=scalars)

    def save(self) -> None:
        """Write a checkpoint: making it is collective, writing is for rank 0."""
        checkpoint = self.trainer.checkpoint()
        if self.trainer.rank == 0 and self.job.checkpoint is not None:
            write_checkpoint(Path(self.job.checkpoint), checkpoint)

    def say(self, row: str, **values: Any) -> None:
        """One JSON row on standard output; only rank 0 speaks."""
        if self.trainer.rank == 0:
            trainer = self.trainer
            times = {"seconds": self.times.seconds, "waited_s": self.times.waited_s}
            place = {"step": trainer.step, "epoch": trainer.epoch, **times}
            print(json.dumps({"row": row, **place, **values}), flush=True)

    def finish(self) -> None:
        """Check that all ranks hold the same parameters and report the run as a whole."""
        steps, workers = self.times.num_steps, self.job.recipe.workers
        [sent] = self.peers.sums([self.meter.sent_bytes(steps)])
        compressor = self.trainer.compressor
        self.say(
            "result",
            steps=steps,
            step_ms=self.times.mean_ms,
            bytes_per_step=sent / self.peers.size / max(1, steps),
            bytes_source=self.meter.source,
            dense_bytes_per_step=ring_bytes(4 * self.trainer.num_parameters, workers),
            parameters=agreed_digest(self.trainer.net, self.peers),
            report=None if compressor is None else compressor.report().to_dict(),
        )


def timed(steps: Iterator[float]) -> Iterator[tuple[float, float]]:
    """Every step's loss and the seconds that it took."""
    start = time.perf_counter()
    for loss in steps:
        yield loss, time.perf_counter() - start
        start = time.perf_counter()


def marks(num_steps: int, count: int) -> Iterator[int]:
    """At most `count` steps, spread evenly, the last one included."""
    return (-(-num_steps * k // count) for k in range(1, count + 1))


def work(job_file: Path) -> NoReturn:
    """Join the group, do the job, leave the group and end."""
    job, rank = read_training_job(job_file), int(os.environ["RANK"])
    if job.virtual:
        work_alone(job)
    join(job_file)
    recipe, task = job.recipe, open_task(Path(job.task_folder))
    total_steps = recipe.num_steps(len(task.train))
    trainer = Trainer(
        recipe,
        task,
        rank,
        hook=lambda net: attach(net, recipe.codec, recipe.seed, job.link_rate, total_steps),
        reference=job.reference,
    )
    meter = meter_for(recipe, trainer.num_parameters, trainer.compressor, job.counters, trainer.local)
    if job.resume is not None:
        trainer.load(Path(job.resume))
    TrainingWorker(job, trainer, meter, Processes()).run()
    trainer.close()
    leave()


def work_alone(job: TrainingJob) -> NoReturn:
    """Do the job of all workers in this process."""
    torch.set_num_threads(1)  # as every worker has
    task = open_task(Path(job.task_folder))
    choice = read_codec_choice(job.recipe.codec)
    trainer: AnyTrainer
    meter: ByteMeter
    if choice.local is not None:
        local = trainer = VirtualLocalTrainer(job.recipe, task)
        meter = TotalMeter(lambda: local.locals[0].exchange.engine.group.step_bytes)
    elif choice.weights is not None:
        sharded = trainer = VirtualShardedTrainer(job.recipe, task)
        meter = TotalMeter(lambda: sharded.sent_bytes)
    else:
        plain = trainer = VirtualTrainer(job.recipe, task, job.reference)
        meter = CompressorMeter(plain.compressor)
    TrainingWorker(job, trainer, meter, Nobody()).run()
    trainer.close()
    end_process(0)


def _end_with_launcher() -> None:
    """Exit as soon as the launcher is gone: it holds the other end of standard input."""

    def wait() -> None:
        while os.read(0, 1):  # not sys.stdin: its lock would be held while the interpreter shuts down
            pass
        os._exit(FAILED)

    threading.Thread(target=wait, daemon=True).start()


def main() -> None:
    """Run the job; a mistake of the user becomes one sentence for the launcher, a bug a traceback.

    The traceback goes as a row of its own: what libraries print while the process ends would bury it.
    """
    _end_with_launcher()
    try:
        work(Path(sys.argv[1]))
    except ThinwireError as error:
        print(json.dumps({"row": "error", "message": str(error)}))
        end_process(FAILED)
    except Exception:
        print(json.dumps({"row": "crash", "lines": traceback.format_exc().splitlines()}))
        end_process(CRASHED)


if __name__ == "__main__":
    main()

"""Studies that train or time: trainings by virtual workers, times of steps and of exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from thinwire.perf.calibration import machine_kind
from thinwire_lab.bench.exchange import ExchangeJob
from thinwire_lab.bench.step import StepJob, with_schedules
from thinwire_lab.claims.claim import ClaimRun, ClaimStudy, Measured, Result, Tell, rounded
from thinwire_lab.data import load_task
from thinwire_lab.net.network import NETLAB, open_network
from thinwire_lab.net.workers import run_workers
from thinwire_lab.report.record import Row
from thinwire_lab.run.launch import launch, shared_task
from thinwire_lab.run.observers import CompressorMeter, Nobody, evaluate, ring_bytes
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.virtual_trainer import VirtualTrainer

TOTAL_BATCH = 64
STEPS = 300
SCALED_DOWN = f"LeNet on MNIST, 4 virtual workers with 16 examples each, {STEPS} steps"
KIND, EXAMPLES = "training", "examples"
CURVE_POINTS = 30
REPETITIONS = (
    "times of one machine whose 2 cores all workers share; what is called a seed is a repetition of the "
    "whole measurement, in which variants take turns"
)


def mnist_recipe(codec: str, workers: int = 4, lr: float = 0.01, momentum: float = 0.9) -> Recipe:
    """TernGrad's first experiment, shortened; its codec, and how many workers share the batch."""
    return Recipe(
        "mnist",
        "lenet",
        epochs=1,
        steps=STEPS,
        batch=TOTAL_BATCH // workers,
        workers=workers,
        lr=lr,
        momentum=momentum,
        codec=codec,
        weight_decay=5e-4,
        evaluations=1,
    )


@dataclass(frozen=True)
class Trainings(ClaimStudy):
    """Every recipe with every seed; what `thinwire train --network virtual` does, scored once at the end.

    `examples`: train on the first so many only.
    """

    recipes: Sequence[Recipe]
    examples: int | None = None
    needs_data = True

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        few = {} if self.examples is None else {EXAMPLES: self.examples}
        return [ClaimRun(KIND, {**settings_of(recipe), **few}, seed) for recipe in self.recipes]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)  # as every worker has
        settings = {**run.settings, "seed": run.seed}
        examples = settings.pop(EXAMPLES, None)
        recipe = recipe_from_dict(settings)
        task = load_task(recipe.task, data)
        trainer = VirtualTrainer(recipe, task if examples is None else task.with_few(examples))
        losses = []
        try:
            for step, loss in enumerate(trainer.steps(0, trainer.num_steps), 1):
                losses.append(loss)
                tell("", step, trainer.num_steps)
            return _summary(trainer, losses)
        finally:
            trainer.close()


def settings_of(recipe: Recipe) -> dict[str, object]:
    """Everything that decides the result, except the seed."""
    return {name: value for name, value in recipe.to_dict().items() if name != "seed"}


def fewer_bytes(one: Measured) -> float:
    """How many times fewer bytes than a ring all-reduce of fp32."""
    return float(one.result["dense_bytes_per_step"] / one.result["bytes_per_step"])


def thinned(losses: Sequence[float]) -> list[list[float]]:
    """Some steps and the mean losses of those up to them: enough for a curve.

    >>> thinned([3.0, 1.0])
    [[1, 3.0], [2, 1.0]]
    """
    every = max(1, -(-len(losses) // CURVE_POINTS))
    parts = [losses[start : start + every] for start in range(0, len(losses), every)]
    return [[k * every + len(part), rounded(sum(part) / len(part))] for k, part in enumerate(parts)]


def _summary(trainer: VirtualTrainer, losses: list[float]) -> Result:
    scores = evaluate(trainer.net, trainer.task, Nobody(), losses)
    return {
        "accuracy": scores.accuracy,
        "test_loss": rounded(scores.test_loss),
        "steps": trainer.step,
        "bytes_per_step": CompressorMeter(trainer.compressor).sent_bytes(1),
        "dense_bytes_per_step": ring_bytes(4 * trainer.num_parameters, trainer.recipe.workers),
        "losses": thinned(losses),
    }


@dataclass(frozen=True)
class StepTimeStudy(ClaimStudy):
    """One training step under several hooks, at some rates; the links are shaped by the kernel (root)."""

    model: str
    hosts: int
    hooks: tuple[str, ...]
    repeats_at: tuple[tuple[str, int], ...]  # turns at each rate
    batch: int = 16

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        fixed = {"model": self.model, "hosts": self.hosts, "hooks": list(self.hooks), "batch": self.batch}
        return [
            ClaimRun("step times", {**fixed, "rate": rate, "repeats": repeats}, seed)
            for rate, repeats in self.repeats_at
        ]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        s = run.settings
        job = StepJob(s["model"], s["batch"], with_schedules(s["hooks"]), s["repeats"], s["rate"], False)
        rows = _timed("thinwire_lab.bench.step", asdict(job), s["rate"], s["hosts"], tell)
        return {
            "step_ms": {row["hook"]: round(row["step_ms"], 2) for row in rows},
            "speedup": {row["hook"]: round(row["speedup_vs_ddp"], 4) for row in rows},
            "bytes": {row["hook"]: row["bytes_per_worker"] for row in rows},
            "machine": machine_kind(),
        }


@dataclass(frozen=True)
class ExchangeTimes(ClaimStudy):
    """One exchange of a gradient by several codecs, at some rates."""

    hosts: int
    codecs: tuple[str, ...]
    repeats_at: tuple[tuple[str, int], ...]
    numel: int = 6_553_600

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        fixed = {"numel": self.numel, "hosts": self.hosts, "codecs": list(self.codecs)}
        return [
            ClaimRun("exchange times", {**fixed, "rate": rate, "repeats": repeats}, seed)
            for rate, repeats in self.repeats_at
        ]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        s = run.settings
        job = ExchangeJob(tuple(s["codecs"]), s["numel"], s["repeats"], s["rate"], False)
        rows = _timed("thinwire_lab.bench.exchange", asdict(job), s["rate"], s["hosts"], tell)
        return {
            "time_ms": {row["codec"]: round(row["time_ms"], 2) for row in rows},
            "speedup": {row["codec"]: round(row["speedup_vs_torch"], 4) for row in rows},
            "machine": machine_kind(),
        }


@dataclass(frozen=True)
class TimedTrainings(ClaimStudy):
    """Whole trainings by processes on shaped links."""

    recipes: tuple[Recipe, ...]
    needs_data = True

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        return [ClaimRun("timed training", settings_of(recipe), seed) for recipe in self.recipes]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        recipe = recipe_from_dict({**run.settings, "seed": run.seed})
        task = load_task(recipe.task, data)

        def on_row(row: Row) -> None:
            if row["row"] == "step":
                tell("", row["step"], recipe.num_steps(len(task.train)))

        with open_network(recipe.rate, recipe.workers, NETLAB) as network, shared_task(task) as folder:
            outcome, _ = launch(recipe, task, folder, network, on_row)
        return {
            "accuracy": outcome.accuracy,
            "seconds": outcome.seconds,
            "step_ms": outcome.step_ms,
            "bytes_per_step": outcome.bytes_per_step,
            "machine": machine_kind(),
        }


def _timed(module: str, job: dict[str, Any], rate: str, hosts: int, tell: Tell) -> list[Row]:
    results = []
    with open_network(rate, hosts, NETLAB) as network:
        for row in run_workers(module, job, network, hosts):
            if row["row"] == "turn":
                tell("", row["turn"], row["of"])
            elif row["row"] == "result":
                results.append(row)
    return results

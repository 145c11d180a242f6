"""Times on shaped links: training steps and exchanges whose variants take turns, and whole trainings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from thinwire.perf.machine import machine_kind
from thinwire_lab.bench.exchange import ExchangeJob
from thinwire_lab.bench.step import StepJob, with_controls
from thinwire_lab.claims.run import Result, Run
from thinwire_lab.claims.studies.training import settings_of
from thinwire_lab.claims.study import Study, Tell
from thinwire_lab.data import load_task
from thinwire_lab.net.network import NETLAB, open_network
from thinwire_lab.net.workers import run_workers
from thinwire_lab.report.outcome import Row
from thinwire_lab.run.launch import launch, shared_task
from thinwire_lab.run.recipe import Recipe, recipe_from_dict

REPETITIONS = (
    "times of one machine whose 2 cores all workers share; what is called a seed is a repetition of the "
    "whole measurement, in which variants take turns"
)


@dataclass(frozen=True)
class StepTimes(Study):
    """One training step under several hooks, at some rates; the links are shaped by the kernel (root)."""

    model: str
    hosts: int
    hooks: tuple[str, ...]
    repeats_at: tuple[tuple[str, int], ...]  # turns at each rate
    batch: int = 16

    def runs(self, seed: int) -> Sequence[Run]:
        fixed = {"model": self.model, "hosts": self.hosts, "hooks": list(self.hooks), "batch": self.batch}
        return [
            Run("step times", {**fixed, "rate": rate, "repeats": repeats}, seed)
            for rate, repeats in self.repeats_at
        ]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        s = run.settings
        job = StepJob(s["model"], s["batch"], with_controls(s["hooks"]), s["repeats"], s["rate"], False)
        rows = _timed("thinwire_lab.bench.step", asdict(job), s["rate"], s["hosts"], tell)
        return {
            "step_ms": {row["hook"]: round(row["step_ms"], 2) for row in rows},
            "speedup": {row["hook"]: round(row["speedup_vs_ddp"], 4) for row in rows},
            "bytes": {row["hook"]: row["bytes_per_worker"] for row in rows},
            "machine": machine_kind(),
        }


@dataclass(frozen=True)
class ExchangeTimes(Study):
    """One exchange of a gradient by several codecs, at some rates."""

    hosts: int
    codecs: tuple[str, ...]
    repeats_at: tuple[tuple[str, int], ...]
    numel: int = 6_553_600

    def runs(self, seed: int) -> Sequence[Run]:
        fixed = {"numel": self.numel, "hosts": self.hosts, "codecs": list(self.codecs)}
        return [
            Run("exchange times", {**fixed, "rate": rate, "repeats": repeats}, seed)
            for rate, repeats in self.repeats_at
        ]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        s = run.settings
        job = ExchangeJob(tuple(s["codecs"]), s["numel"], s["repeats"], s["rate"], False)
        rows = _timed("thinwire_lab.bench.exchange", asdict(job), s["rate"], s["hosts"], tell)
        return {
            "time_ms": {row["codec"]: round(row["time_ms"], 2) for row in rows},
            "speedup": {row["codec"]: round(row["speedup_vs_torch"], 4) for row in rows},
            "machine": machine_kind(),
        }


@dataclass(frozen=True)
class TimedTrainings(Study):
    """Whole trainings by processes on shaped links."""

    recipes: tuple[Recipe, ...]
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        return [Run("timed training", settings_of(recipe), seed) for recipe in self.recipes]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
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

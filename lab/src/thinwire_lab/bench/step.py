"""One training step under several hooks: what runs in every worker, and the rows that follow from it.

Started as `python -m thinwire_lab.bench.step JOB_FILE`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.errors import LabError
from thinwire_lab.bench.cell import timed
from thinwire_lab.models import model_card
from thinwire_lab.net.workers import join, leave
from thinwire_lab.run.ddp_exchange import HookedModel, attach, check_codec
from thinwire_lab.spread import Spread, ratios

Row = dict[str, Any]
FLOOR = "none"  # no_sync: what a step costs without any exchange
BASE = "ddp"
AGAIN = "ddp-again"  # the same as ddp, run as if it were another variant: the noise of the comparison
BUCKET = "ddp-bucket"  # "ddp-bucket:5": DDP with another bucket size, in MB
BEST_BUCKETS_MB = (1, 5, 100)
DECIDE_STEPS = 80  # auto has decided by then
WARM_UP_TURNS = 3  # buckets are rebuilt, PowerSGD starts, buffers are allocated


@dataclass(frozen=True)
class StepJob:
    """The job of the workers."""

    model: str
    batch: int
    hooks: tuple[str, ...]
    repeats: int
    rate: str
    emulated: bool
    per_host: int = 1  # workers


class HookedTraining:
    """A model under one hook, with its optimizer and its batch."""

    def __init__(self, hook: str, job: StepJob) -> None:
        card = model_card(job.model)
        self.hook = hook
        hooked = _hooked(card.build(seed=0), hook, job.rate if job.emulated else None)
        self.model, self.compressor = hooked.model, hooked.compressor
        self.optimizer = card.new_optimizer(self.model.parameters())
        self.x, self.y = card.example(job.batch, seed=dist.get_rank())

    def settle(self) -> None:
        """Trains until `auto` has decided on all ranks; any other hook has nothing to decide."""
        for _ in range(DECIDE_STEPS):
            decided = torch.tensor(int(self.compressor is None or self.compressor.decided))
            dist.all_reduce(decided, op=dist.ReduceOp.MIN)
            if decided.item():
                return
            self.step()

    def step(self) -> None:
        with self.model.no_sync() if self.hook == FLOOR else nullcontext():
            self.optimizer.zero_grad()
            logits = self.model(self.x).flatten(0, -2)
            torch.autograd.backward(nn.functional.cross_entropy(logits, self.y.flatten()))
        self.optimizer.step()


def _hooked(net: nn.Module, hook: str, link_rate: str | None) -> HookedModel:
    name, _, option = hook.partition(":")
    if name == BUCKET:
        return HookedModel(DistributedDataParallel(net, bucket_cap_mb=float(option)), None)
    return attach(net, BASE if name in (FLOOR, AGAIN) else hook, 0, link_rate)


def main(path: Path) -> None:
    """Every worker: all hooks take turns, one step each; rank 0 prints one row per hook."""
    values = json.loads(path.read_text())
    job = StepJob(**{**values, "hooks": tuple(values["hooks"])})
    join(path)
    trainings = {hook: HookedTraining(hook, job) for hook in job.hooks}
    for training in trainings.values():
        training.settle()
    times: dict[str, list[float]] = {hook: [] for hook in job.hooks}
    sent: dict[str, list[float]] = {hook: [] for hook in job.hooks}
    for turn in range(job.repeats + WARM_UP_TURNS):
        for hook, training in trainings.items():
            seconds, nbytes = timed(training.step)
            if turn >= WARM_UP_TURNS:
                times[hook].append(seconds)
                sent[hook].append(nbytes)
        if dist.get_rank() == 0:
            print(
                json.dumps({"row": "turn", "turn": turn + 1, "of": job.repeats + WARM_UP_TURNS}), flush=True
            )
    if dist.get_rank() == 0:
        for row in _rows(job, times, sent):
            print(json.dumps({"row": "result", **row}), flush=True)
    leave()


def _rows(job: StepJob, times: dict[str, list[float]], sent: dict[str, list[float]]) -> Iterator[Row]:
    speedups = ratios(times, BASE)
    floors = ratios(times, FLOOR)
    for hook, seconds in times.items():
        spread = Spread.of(1e3 * s for s in seconds)
        yield {
            "hook": hook,
            "model": job.model,
            "hosts": dist.get_world_size() // job.per_host,
            "workers_per_host": job.per_host,
            "rate": job.rate,
            "batch": job.batch,
            "step_ms": spread.median,
            "step_ms_quartiles": spread.quartiles,
            "speedup_vs_ddp": speedups[hook].median,
            "speedup_quartiles": speedups[hook].quartiles,
            "floor_ratio": 1 / floors[hook].median,
            "bytes_per_worker": Spread.of(sent[hook]).median / job.per_host,  # its host's, shared out
        }


def check_hooks(hooks: Sequence[str]) -> None:
    """Refuses a wrong name once, before any worker starts."""
    for hook in hooks:
        name, _, option = hook.partition(":")
        if name == BUCKET and not option.replace(".", "", 1).isdigit():
            raise LabError(f"{hook!r} needs a size in MB: write {BUCKET}:5")
        if name not in (FLOOR, AGAIN, BUCKET):
            check_codec(hook)


def with_schedules(hooks: Sequence[str]) -> tuple[str, ...]:
    """The hooks to run: always with the floor and plain DDP; "ddp-best" stands for several bucket sizes."""
    wanted = [FLOOR, BASE, AGAIN, *hooks]
    sizes = [f"{BUCKET}:{mb}" for mb in BEST_BUCKETS_MB]
    flat = [name for hook in wanted for name in (sizes if hook == "ddp-best" else [hook])]
    return tuple(dict.fromkeys(flat))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

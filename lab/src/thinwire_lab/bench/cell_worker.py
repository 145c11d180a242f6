"""A worker of a cell: measures its inputs, forecasts every codec, and only then times them.

Started as `python -m thinwire_lab.bench.cell_worker JOB_FILE`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from thinwire.codecs.codec import parse
from thinwire.groups.torch import TorchGroup
from thinwire.perf.calibration import Calibration
from thinwire.perf.fit import bucket_layers, forecast_measured
from thinwire.perf.forecast import StepTimes
from thinwire.perf.network import Compute, Layer
from thinwire.perf.store import probe_codecs, probe_link
from thinwire.plans.plan import HORIZON
from thinwire.plans.policy import Model, parameter_names
from thinwire_lab.bench.cell import AGAIN, AUTO, AUTO_QUALITY, BASE, CellJob, Record, timed
from thinwire_lab.models import ModelCard, model_card
from thinwire_lab.net.workers import PEER_TIMEOUT, join, leave
from thinwire_lab.run.ddp_exchange import attach, is_pytorch
from thinwire_lab.spread import Spread, ratios

WARM_UP_STEPS = 3  # DDP makes its buckets anew after the first
LONG_S = 0.7
DECIDE_STEPS = 80  # `auto` must have decided by then
RARE = 0.01  # phases of a smaller share of the steps are walked through, not timed
CPU = torch.device("cpu")


@dataclass
class BackwardWatch:
    """What the hook sees of one backward pass: the buckets by the names of their tensors, and the times."""

    names: dict[int, str]
    buckets: list[list[str]] = field(default_factory=list)
    seen_s: list[float] = field(default_factory=list)

    def clear(self) -> None:
        self.buckets.clear()
        self.seen_s.clear()


def watch(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with the real classes
    """A hook that sends nothing: a bucket is done when it is ready."""
    state.seen_s.append(time.perf_counter())
    state.buckets.append([state.names[id(p)] for p in bucket.parameters()])
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


watch.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}


@dataclass(frozen=True)
class Floor:
    """Compute while all workers run, and DDP's buckets in the order in which they are ready."""

    compute: Compute
    buckets: tuple[tuple[Layer, ...], ...]


class FloorTraining:
    """A model under DDP whose buckets go nowhere."""

    def __init__(self, card: ModelCard, batch: int) -> None:
        net = card.build(seed=0)
        self.model = DistributedDataParallel(net)
        self.watch = BackwardWatch(parameter_names(net))
        self.model.register_comm_hook(self.watch, watch)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.batch, self.seen = batch, list[list[float]]()
        self.x, self.y = card.example(batch, seed=dist.get_rank())

    def step(self) -> list[float]:
        """Seconds of the whole step, of its backward pass, and from that pass's start to each bucket."""
        self.watch.clear()
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x).flatten(0, -2), self.y.flatten())
        begin = time.perf_counter()
        torch.autograd.backward(loss)
        end = time.perf_counter()
        self.optimizer.step()
        ready = [seen - begin for seen in self.watch.seen_s]
        return [time.perf_counter() - start, end - begin, *ready]

    def warm_up(self) -> None:
        for _ in range(WARM_UP_STEPS):
            self.step()

    def turn(self) -> None:
        """Some steps that all workers begin together; the first is not counted, because its caches are cold.

        Each number is that of the slowest worker.
        """
        for turn in range(3):
            dist.barrier()
            own = torch.tensor(self.step(), dtype=torch.float64)
            if turn:
                dist.all_reduce(own, op=dist.ReduceOp.MAX)
                self.seen.append(own.tolist())

    def floor(self) -> Floor:
        """Medians over all turns."""
        whole, backward, *ready = (statistics.median(column) for column in zip(*self.seen, strict=True))
        compute = Compute(self.batch, whole - backward, backward, tuple(ready), "measured, no exchange")
        model = Model.of(self.model.module)
        return Floor(compute, bucket_layers(model, self.watch.buckets))


@dataclass
class TimedPhase:
    """A hook, or one phase of it: a training that it shares with its other phases, and its times."""

    name: str
    training: CellTraining
    first: int | None = None  # the engine goes to this step: phases go by it
    share: float = 1.0  # of all steps
    times: list[float] = field(default_factory=list)

    last_s: float = 0.0
    clock_ms: dict[str, float] = field(default_factory=dict)  # where the exchange's time went, last turn

    def turn(self) -> float:
        """The mean of some consecutive steps, as in training; the first is not counted.

        Other hooks ran before it, so its caches are cold. If steps are long, one is enough and is counted.
        """
        if self.last_s < LONG_S:
            self.last_s, _ = timed(self.step)
        before = self.training.clock()
        steps = 2 if self.last_s < LONG_S else 1
        self.last_s = sum(timed(self.step)[0] for _ in range(steps)) / steps
        after = self.training.clock()
        self.clock_ms = {name: round(1e3 * (after[name] - before[name]) / steps, 3) for name in after}
        return self.last_s

    def step(self) -> None:
        if self.first is not None:
            self.training.go_to(self.first)
        self.training.step()


class CellTraining:
    """A model under one hook, with its optimizer and its batch."""

    def __init__(self, hook: str, model: str, batch: int, quality: str = AUTO_QUALITY) -> None:
        card = model_card(model)
        net = card.build(seed=0)
        self.compressor: Any = None
        if hook == AUTO:
            self.model = DistributedDataParallel(net)
            self.compressor = tw.compress(self.model, AUTO, quality=quality)
        else:
            hooked = attach(net, BASE if hook == AGAIN else hook, 0, None)
            self.model, self.compressor = hooked.model, hooked.compressor
        self.optimizer = card.new_optimizer(self.model.parameters())
        self.x, self.y = card.example(batch, seed=dist.get_rank())

    def clock(self) -> dict[str, float]:
        return {} if self.compressor is None else dict(self.compressor.engine.clock.seconds)

    def go_to(self, step: int) -> None:
        self.compressor.engine.finite_steps = step

    def step(self) -> None:
        self.optimizer.zero_grad()
        logits = self.model(self.x).flatten(0, -2)
        torch.autograd.backward(nn.functional.cross_entropy(logits, self.y.flatten()))
        self.optimizer.step()

    def decide(self) -> int:
        """Steps until `auto` has decided on all ranks."""
        for steps in range(DECIDE_STEPS):
            if all_ranks(bool(self.compressor.decided)):
                return steps
            self.step()
        return DECIDE_STEPS


def main(path: Path) -> None:
    """Runs in every worker; rank 0 prints the record of the cell."""
    warnings.simplefilter("ignore")  # a codec that leaves a small model dense is what the grid wants to see
    job = CellJob.from_json(json.loads(path.read_text()))
    meet(path)
    begin = time.perf_counter()
    variants, notes = _variants(job)
    floor = _floor(job, variants)
    calibration = _calibration(job)
    forecasts = _forecast(job, floor, calibration)
    inputs_s = time.perf_counter() - begin
    repeats = take_turns(variants, job.seconds, job.min_repeats, job.max_repeats)
    if dist.get_rank() == 0:
        record = _record(floor, calibration, forecasts, variants)
        told = {**record, **notes, "repeats": repeats, "inputs_s": round(inputs_s, 2)}
        print(json.dumps({"row": "result", **told}), flush=True)
    leave()


def meet(path: Path) -> None:
    """Joins the group, through the first host of netlab if there is one, whose network thinwire then uses."""
    if "MASTER_ADDR" not in os.environ:
        join(path)
        return
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="env://", timeout=PEER_TIMEOUT)


def _floor(job: CellJob, variants: list[TimedPhase]) -> Floor:
    """A step without exchange, measured between the first turns of all hooks, whose times are not used.

    Measured alone it would be a few percent faster: in the timed turns other hooks use the caches as well.
    """
    training = FloorTraining(model_card(job.model), job.batch)
    training.warm_up()
    for variant in variants:
        training.turn()
        variant.turn()
    return training.floor()


def _calibration(job: CellJob) -> Calibration:
    """The link and the codecs, while all workers run."""
    group = TorchGroup()
    group.connect()
    linked = probe_link(group, CPU, job.probe_s)
    speeds, contends = probe_codecs(group, CPU, job.codecs, seconds=job.probe_s)
    group.close()
    return linked.with_speeds(speeds, contends)


def _forecast(job: CellJob, floor: Floor, calibration: Calibration) -> dict[str, StepTimes]:
    """Forecast milliseconds by name of the hook, or of hook and phase."""
    codecs = [BASE, *job.codecs]
    made = forecast_measured(codecs, floor.buckets, job.workers, calibration, floor.compute)
    return {
        _phase_name(one.codec, phase.name): phase.times
        for one in made
        for phase in one.phases
        if phase.share >= RARE
    }


def _phase_name(hook: str, phase: str) -> str:
    return f"{hook} {phase.split()[0]}" if phase.strip() else hook


def _variants(job: CellJob) -> tuple[list[TimedPhase], Record]:
    """All hooks, after the steps of earlier phases, from which later phases learn."""
    found: list[TimedPhase] = []
    notes: Record = {}

    for hook in (BASE, AGAIN, *job.codecs, *job.others):
        training = CellTraining(hook, job.model, job.batch)
        phases = {} if hook in (BASE, AGAIN, AUTO) or is_pytorch(hook) else _phases(hook)
        if hook == AUTO:
            notes["auto"] = {"steps": training.decide(), "report": str(training.compressor.report())}
        if len(phases) < 2:
            found.append(TimedPhase(hook, training))
            continue
        for first, _ in phases.values():
            training.go_to(first)
            training.step()
        found += [
            TimedPhase(_phase_name(hook, phase), training, first, share)
            for phase, (first, share) in phases.items()
            if share >= RARE
        ]
    return found, notes


def _phases(hook: str) -> dict[str, tuple[int, float]]:
    """The first step of every phase of a codec, and its share of all steps."""
    codec = parse(hook)
    names = [codec.phase(step) for step in range(HORIZON)]
    return {name: (names.index(name), names.count(name) / HORIZON) for name in dict.fromkeys(names)}


def take_turns(variants: Sequence[TimedPhase], seconds: float, min_repeats: int, max_repeats: int) -> int:
    """Runs the hooks in turn until the time is up; all workers stop after the same turn.

    Every turn begins with another hook: what one leaves behind (caches, queues, a scheduler's debts) does not
    always hit the same one.
    """
    begin = time.perf_counter()
    turn = 0
    while True:
        first = turn % len(variants)
        for variant in (*variants[first:], *variants[:first]):
            variant.times.append(variant.turn())
        turn += 1
        spent = time.perf_counter() - begin
        enough = turn >= max_repeats or spent * (turn + 1) / turn > seconds
        _say("turn", turn=turn, of=max_repeats)
        if turn >= min_repeats and not all_ranks(not enough):
            return turn


def measured(variants: Sequence[TimedPhase]) -> Record:
    """The fields of a record about the phases that were timed."""
    times = {variant.name: variant.times for variant in variants}
    spreads = {name: Spread.of(1e3 * s for s in values) for name, values in times.items()}
    return {
        "measured_ms": {name: round(spread.median, 3) for name, spread in spreads.items()},
        "quartiles_ms": {name: [round(q, 3) for q in spread.quartiles] for name, spread in spreads.items()},
        "speedup_vs_ddp": {name: round(s.median, 4) for name, s in ratios(times, BASE).items()},
        "aa_quartiles": [round(q, 4) for q in ratios(times, BASE)[AGAIN].quartiles],
        "shares": {variant.name: variant.share for variant in variants if variant.share < 1},
    }


def _record(
    floor: Floor, calibration: Calibration, forecasts: dict[str, StepTimes], variants: list[TimedPhase]
) -> Record:
    return {
        "forecast_ms": {name: round(1e3 * one.step_s, 3) for name, one in forecasts.items()},
        **measured(variants),
        "clock_ms": {variant.name: variant.clock_ms for variant in variants if variant.clock_ms},
        "compute": asdict(floor.compute),
        "buckets": [[[list(layer.shape), layer.kind] for layer in bucket] for bucket in floor.buckets],
        "calibration": calibration.to_json(),
    }


def all_ranks(mine: bool) -> bool:
    """Whether `mine` is true on all ranks."""
    flag = torch.tensor(int(mine))
    dist.all_reduce(flag, op=dist.ReduceOp.MIN)
    return bool(flag.item())


def _say(row: str, **values: Any) -> None:
    if dist.get_rank() == 0:
        print(json.dumps({"row": row, **values}), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

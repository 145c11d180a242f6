"""One exchange of a tensor by N workers: what runs in every worker, and the rows that follow from it.

Started as `python -m thinwire_lab.bench.exchange JOB_FILE`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from thinwire.exchange.bucket import Bucket
from thinwire.exchange.engine import Engine
from thinwire.groups.base import Group, Pending, all_reduce_bytes
from thinwire.groups.emulated import Emulated, Link
from thinwire.groups.torch import TorchGroup
from thinwire.groups.traced import Traced
from thinwire.plans.lane import step_bytes
from thinwire.plans.plan import Stretch, mean_bytes
from thinwire.tensors.layout import Layout
from thinwire_lab.bench.gradient import bench_plan
from thinwire_lab.bench.timing import timed
from thinwire_lab.bench.trace import WIRE, WORK, Bar
from thinwire_lab.net.rendezvous import join, leave
from thinwire_lab.spread import Spread, ratios

Row = dict[str, Any]
TORCH = "torch-allreduce"  # torch.distributed.all_reduce of the fp32 tensor: what thinwire must beat


@dataclass(frozen=True)
class ExchangeJob:
    """What the workers are told."""

    codecs: tuple[str, ...]
    numel: int
    repeats: int
    rate: str
    emulated: bool
    pipelines: tuple[bool, ...] = (True,)  # False: every codec once more, its gradient in one piece
    trace: bool = False


@dataclass
class Variant:
    """A codec, with or without its pipeline, in the phase in which it sends least."""

    codec: str
    pipeline: bool
    act: Callable[[], None]
    phase: str
    planned_bytes: int
    mean_bytes: float  # over all phases
    num_parts: int = 1  # that follow each other
    engine: Engine | None = None
    traced: Traced | None = None
    times: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.codec if self.pipeline else f"{self.codec} in one piece"


def main(path: Path) -> None:
    """Every worker: all codecs take turns; rank 0 prints one row per codec."""
    values = json.loads(path.read_text())
    lists = {name: tuple(values[name]) for name in ("codecs", "pipelines")}
    job = ExchangeJob(**{**values, **lists})
    join(path)
    x = torch.randn(job.numel, generator=torch.Generator().manual_seed(dist.get_rank()))
    buffer = torch.empty_like(x)
    variants = [_torch(buffer, job)]
    for codec in job.codecs:
        made = [_variant(codec, pipeline, buffer, x, job) for pipeline in job.pipelines]
        variants += made if made[0].num_parts > 1 or not made[0].pipeline else made[:1]
    for turn in range(job.repeats + 1):
        for variant in variants:
            buffer.copy_(x)
            seconds, nbytes = timed(variant.act)
            if turn:  # the first turn compares digests and allocates buffers
                variant.times.append(seconds)
                variant.sent.append(nbytes)
        if dist.get_rank() == 0:
            print(json.dumps({"row": "turn", "turn": turn + 1, "of": job.repeats + 1}), flush=True)
    bars = [bar for variant in variants[1:] for bar in _trace(variant, buffer, x)] if job.trace else []
    if dist.get_rank() == 0:
        for row in _rows(job, variants):
            print(json.dumps({"row": "result", **row}), flush=True)
        if bars:
            print(json.dumps({"row": "trace", "bars": [asdict(bar) for bar in bars]}), flush=True)
    leave()


def _group(job: ExchangeJob) -> Group:
    group = TorchGroup()
    group.connect()
    return Emulated(group, Link(job.rate)) if job.emulated else group


def _torch(buffer: torch.Tensor, job: ExchangeJob) -> Variant:
    group = _group(job)
    sent = all_reduce_bytes(4 * job.numel, group.size)
    return Variant(TORCH, True, lambda: _wait(group.all_reduce(buffer)), "", sent, sent)


def _variant(codec: str, pipeline: bool, buffer: torch.Tensor, x: torch.Tensor, job: ExchangeJob) -> Variant:
    """The codec after a step in each of its earlier phases, in which it learns what the timed one needs."""
    traced = Traced(_group(job))
    plan = bench_plan(codec, job.numel, traced.size)
    bucket = Bucket(buffer, Layout.packed(entry.spec for entry in plan.entries))
    part_numel = None if pipeline else job.numel
    engine = Engine(plan, traced, buffer.device, error_every=0, part_numel=part_numel)
    stretches = plan.stretches(part_numel=part_numel)
    timed = min(stretches, key=lambda stretch: stretch.step_bytes)

    def act(stretch: Stretch = timed) -> None:
        engine.finite_steps = stretch.first  # phases go by these
        engine.exchange(bucket)
        engine.end_step()

    for stretch in stretches[: stretches.index(timed)]:
        buffer.copy_(x)
        act(stretch)
    lanes = plan.lanes(bucket.layout, engine.context, timed.first, engine.learned, part_numel)
    parts = max(len(lane.parts) for lane in lanes)
    mean = mean_bytes(stretches)
    return Variant(codec, pipeline, act, timed.phase, step_bytes(lanes), mean, parts, engine, traced)


def _wait(pending: Pending) -> None:
    pending.wait()


def _trace(variant: Variant, buffer: torch.Tensor, x: torch.Tensor) -> list[Bar]:
    """One more exchange, watched: the bars of all workers, on rank 0."""
    assert variant.engine is not None
    assert variant.traced is not None
    buffer.copy_(x)
    dist.barrier()
    variant.engine.clock.events, start = [], time.perf_counter()
    variant.traced.events.clear()
    variant.act()
    own = [(WORK, event) for event in variant.engine.clock.events]
    own += [(WIRE, event) for event in variant.traced.events]
    variant.engine.clock.events = None
    everyone: list[tuple[float, list[Any]]] = [(0.0, [])] * dist.get_world_size()
    dist.all_gather_object(everyone, (start, own))
    zero = min(begin for begin, _ in everyone)  # one machine, one clock
    return [
        Bar(variant.name, rank, line, event.what, event.start - zero, event.end - zero, event.part)
        for rank, (_, events) in enumerate(everyone)
        for line, event in events
    ]


def _rows(job: ExchangeJob, variants: list[Variant]) -> Iterator[Row]:
    times = {variant.name: variant.times for variant in variants}
    base = "dense" if "dense" in times else TORCH
    speedups, against_torch = ratios(times, base), ratios(times, TORCH)
    for variant in variants:
        name, spread = variant.name, Spread.of(1e3 * s for s in variant.times)
        yield {
            "codec": variant.codec,
            "pipeline": variant.pipeline,
            "parts": variant.num_parts,
            "phase": variant.phase,
            "hosts": dist.get_world_size(),
            "rate": job.rate,
            "numel": job.numel,
            "time_ms": spread.median,
            "time_ms_quartiles": spread.quartiles,
            "speedup_vs_dense": speedups[name].median,
            "speedup_quartiles": speedups[name].quartiles,
            "speedup_vs_torch": against_torch[name].median,
            "bytes_per_worker": Spread.of(variant.sent).median,
            "planned_bytes_per_worker": variant.planned_bytes,
            "mean_planned_bytes_per_worker": variant.mean_bytes,
        }


if __name__ == "__main__":
    main(Path(sys.argv[1]))

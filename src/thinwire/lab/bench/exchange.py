"""One exchange of a tensor by N workers: what runs in every worker, and the rows that follow from it.

Started as `python -m thinwire.lab.bench.exchange JOB_FILE`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import thinwire as tw
from thinwire.engine import Bucket, Engine
from thinwire.groups.base import Group, Pending, sum_bytes
from thinwire.groups.emulated import Emulated, Link
from thinwire.groups.torch import TorchGroup
from thinwire.lab.bench.spread import Spread, ratios
from thinwire.lab.bench.worker import Bytes, join, leave
from thinwire.plan import Plan
from thinwire.policy import Model, Policy
from thinwire.spec import Layout, Spec

Row = dict[str, Any]
TORCH = "torch-allreduce"  # torch.distributed.all_reduce of the fp32 tensor: what thinwire must beat


@dataclass(frozen=True)
class Job:
    """What the workers are told."""

    codecs: tuple[str, ...]
    numel: int
    repeats: int
    rate: str
    emulated: bool


def main(path: Path) -> None:
    """Every worker: all codecs take turns; rank 0 prints one row per codec."""
    values = json.loads(path.read_text())
    job = Job(**{**values, "codecs": tuple(values["codecs"])})
    join(path)
    x = torch.randn(job.numel, generator=torch.Generator().manual_seed(dist.get_rank()))
    buffer = torch.empty_like(x)
    names = [TORCH, *job.codecs]
    acts = {name: _act(name, buffer, job) for name in names}
    times: dict[str, list[float]] = {name: [] for name in names}
    sent: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(job.repeats + 1):
        for name in names:
            buffer.copy_(x)
            seconds, nbytes = _timed(acts[name])
            if turn:  # the first turn compares digests and allocates buffers
                times[name].append(seconds)
                sent[name].append(nbytes)
        if dist.get_rank() == 0:
            print(json.dumps({"row": "turn", "turn": turn + 1, "of": job.repeats + 1}), flush=True)
    if dist.get_rank() == 0:
        for row in _rows(job, times, sent):
            print(json.dumps({"row": "result", **row}), flush=True)
    leave()


def _act(name: str, buffer: torch.Tensor, job: Job) -> Callable[[], None]:
    group: Group = TorchGroup()
    if job.emulated:
        group = Emulated(group, Link(job.rate))
    if name == TORCH:
        return lambda: _wait(group.sum_(buffer))
    plan = _plan(name, job.numel, group.size)
    bucket = Bucket(buffer, Layout.packed(entry.spec for entry in plan.entries))
    engine = Engine(plan, group, buffer.device, error_every=0)

    def act() -> None:
        engine.exchange(bucket)
        engine.end_step()

    return act


def _wait(pending: Pending) -> None:
    pending.wait()


def _plan(codec: str, numel: int, world: int) -> Plan:
    return Plan.of(Policy.of(codec, keep_dense=()), Model((Spec("x", (numel,)),)), world)


def _timed(act: Callable[[], None]) -> tuple[float, float]:
    """The slowest worker's seconds, and the bytes this worker's interface sent (0 without counters)."""
    dist.barrier()
    before = Bytes.read()
    start = time.perf_counter()
    act()
    seconds = torch.tensor(time.perf_counter() - start)
    dist.barrier()  # what is still queued in the kernel leaves before the counters are read
    nbytes = Bytes.read() - before
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item(), float(nbytes)


def _rows(job: Job, times: dict[str, list[float]], sent: dict[str, list[float]]) -> Iterator[Row]:
    world = dist.get_world_size()
    base = "dense" if "dense" in times else TORCH
    speedups, against_torch = ratios(times, base), ratios(times, TORCH)
    for name, seconds in times.items():
        spread = Spread.of([1e3 * s for s in seconds])
        if name == TORCH:
            planned = sum_bytes(4 * job.numel, world)
        else:
            plan = _plan(name, job.numel, world)
            planned = plan.step_bytes()
        yield {
            "codec": name,
            "hosts": world,
            "rate": job.rate,
            "numel": job.numel,
            "time_ms": spread.median,
            "time_ms_quartiles": [spread.low, spread.high],
            "speedup_vs_dense": speedups[name].median,
            "speedup_quartiles": [speedups[name].low, speedups[name].high],
            "speedup_vs_torch": against_torch[name].median,
            "bytes_per_worker": Spread.of(sent[name]).median,
            "planned_bytes_per_worker": planned,
        }


def write_job(folder: Path, job: Job) -> Path:
    path = folder / "job.json"
    path.write_text(json.dumps(asdict(job)))
    return path


if __name__ == "__main__":
    main(Path(sys.argv[1]))

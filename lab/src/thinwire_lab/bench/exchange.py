"""One exchange of a tensor by N workers: what runs in every worker, and the rows that follow from it.

Started as `python -m thinwire_lab.bench.exchange JOB_FILE`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

import thinwire as tw
from thinwire.exchange.engine import Bucket, Engine
from thinwire.groups.base import Group, Pending, all_reduce_bytes
from thinwire.groups.torch import TorchGroup
from thinwire.groups.wrappers import Emulated, Link, Traced
from thinwire.plans.lane import Stretch, step_bytes
from thinwire.plans.plan import mean_bytes
from thinwire.tensors import Layout
from thinwire_lab.bench.cell import bench_plan, gradient_spec, timed
from thinwire_lab.net.workers import join, leave
from thinwire_lab.spread import Spread, ratios

WORK, WIRE = "work", "on the wire"
COLORS = {
    "agree": "#8172b3",
    "encode": "#4c72b0",
    "travel": "#d9d9d9",
    "merge": "#ccb974",
    "decode": "#55a868",
    WIRE: "#dd8452",
}
_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>thinwire: timeline of exchanges</title>
<style>
body {{ font: 14px system-ui, sans-serif; margin: 2em; color: #222 }}
h2 {{ font-size: 1.1em; margin: 1.5em 0 .4em }}
.row {{ display: flex; align-items: center; height: 22px }}
.row b {{ width: 13em; font-weight: normal; color: #555 }}
.row span {{ position: relative; flex: 1; height: 18px; background: #f6f6f6 }}
u {{ position: absolute; height: 100%; font-size: 11px; text-decoration: none; overflow: hidden;
  text-align: center; color: #fff; min-width: 1px; box-shadow: inset -1px 0 #fff8 }}
i {{ display: inline-block; width: 1em; height: 1em; margin: 0 .3em 0 1em; vertical-align: -2px }}
</style>
<h1>Timeline of exchanges</h1>
<p>All on one scale. Numbers are parts of the gradient. "travel" is a worker waiting for the network;
"on the wire" lasts from the start of a collective until the worker has waited for its end.</p>
<p>{legend}</p>
{body}
</html>
"""
Row = dict[str, Any]
TORCH = "torch-allreduce"  # torch.distributed.all_reduce of the fp32 tensor: what thinwire must beat


@dataclass(frozen=True)
class Bar:
    """One stretch of time on a line: seconds since the exchange began on the first worker."""

    exchange: str
    rank: int
    line: str  # WORK or WIRE
    what: str
    start: float
    end: float
    part: int | None = None

    @property
    def label(self) -> str:
        return self.what if self.part is None else f"{self.what} {self.part}"


def write_trace(path: Path, bars: Sequence[Bar]) -> None:
    """A page if the name ends in .html, else JSON for chrome://tracing or ui.perfetto.dev."""
    text = _page(bars) if path.suffix == ".html" else json.dumps({"traceEvents": chrome_events(bars)})
    path.write_text(text)


def chrome_events(bars: Sequence[Bar]) -> list[dict[str, Any]]:
    """Complete events ("X"), one process for each worker of an exchange, with a thread for each line."""
    processes: dict[tuple[str, int], int] = {}
    events: list[dict[str, Any]] = []
    for bar in bars:
        place = bar.exchange, bar.rank
        if place not in processes:
            processes[place] = len(processes) + 1
            name = {"name": f"{bar.exchange}, worker {bar.rank}"}
            events.append({"ph": "M", "name": "process_name", "pid": processes[place], "args": name})
            for thread, line in enumerate((WORK, WIRE)):
                about = {"ph": "M", "name": "thread_name", "pid": processes[place], "tid": thread}
                events.append({**about, "args": {"name": line}})
        event = {"ph": "X", "name": bar.label, "cat": bar.what, "ts": 1e6 * bar.start}
        place_of = {"pid": processes[place], "tid": int(bar.line == WIRE)}
        events.append({**event, **place_of, "dur": 1e6 * (bar.end - bar.start)})
    return events


def _page(bars: Sequence[Bar]) -> str:
    """All exchanges on the same scale, one under the other: worker by worker, work above wire."""
    span = max((bar.end for bar in bars), default=1.0)
    exchanges = dict.fromkeys(bar.exchange for bar in bars)
    body = "\n".join(_picture(name, [b for b in bars if b.exchange == name], span) for name in exchanges)
    names = "".join(f'<i style="background:{color}"></i>{what} ' for what, color in COLORS.items())
    return _PAGE.format(legend=names, body=body)


def _picture(name: str, bars: Sequence[Bar], span: float) -> str:
    lines = sorted({(bar.rank, bar.line == WIRE) for bar in bars})
    end = max(bar.end for bar in bars)
    rows = []
    for rank, wire in lines:
        own = (b for b in bars if (b.rank, b.line == WIRE) == (rank, wire))
        drawn = "".join(_bar(bar, span) for bar in sorted(own, key=lambda b: b.start))
        rows.append(f"<div class=row><b>worker {rank} {WIRE if wire else WORK}</b><span>{drawn}</span></div>")
    return f"<h2>{_escape(name)}: {1e3 * end:.1f} ms</h2>" + "".join(rows)


def _bar(bar: Bar, span: float) -> str:
    color = COLORS[WIRE] if bar.line == WIRE else COLORS.get(bar.what, "#999999")
    left, width = 100 * bar.start / span, 100 * (bar.end - bar.start) / span
    title = f"{bar.label}: {1e3 * bar.start:.2f} to {1e3 * bar.end:.2f} ms"
    text = "" if bar.part is None else str(bar.part)
    style = f"left:{left:.3f}%;width:{width:.3f}%;background:{color}"
    return f'<u style="{style}" title="{_escape(title)}">{text}</u>'


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")


@dataclass(frozen=True)
class ExchangeJob:
    """The job of the workers."""

    codecs: tuple[str, ...]
    numel: int
    repeats: int
    rate: str
    emulated: bool
    pipelines: tuple[bool, ...] = (True,)  # False: every codec once more, its gradient in one piece
    trace: bool = False
    doors: bool = False  # every codec once more, by tw.Exchange


@dataclass
class ExchangeVariant:
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
        variants += [_door(codec, made[0], buffer, job)] if job.doors else []
    for turn in range(job.repeats + 1):
        for variant in variants:
            buffer.copy_(x)
            seconds, nbytes = timed(variant.act)
            if turn:  # the first turn compares digests and allocates buffers
                variant.times.append(seconds)
                variant.sent.append(nbytes)
        if dist.get_rank() == 0:
            print(json.dumps({"row": "turn", "turn": turn + 1, "of": job.repeats + 1}), flush=True)
    engines = [variant for variant in variants if variant.engine is not None]
    bars = [bar for variant in engines for bar in _trace(variant, buffer, x)] if job.trace else []
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


def _torch(buffer: torch.Tensor, job: ExchangeJob) -> ExchangeVariant:
    group = _group(job)
    sent = all_reduce_bytes(4 * job.numel, group.size)
    return ExchangeVariant(TORCH, True, lambda: _wait(group.all_reduce(buffer)), "", sent, sent)


def _variant(
    codec: str, pipeline: bool, buffer: torch.Tensor, x: torch.Tensor, job: ExchangeJob
) -> ExchangeVariant:
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
    return ExchangeVariant(codec, pipeline, act, timed.phase, step_bytes(lanes), mean, parts, engine, traced)


def _door(codec: str, like: ExchangeVariant, buffer: torch.Tensor, job: ExchangeJob) -> ExchangeVariant:
    """The same by `Exchange.mean_`, as a loop of one's own calls it."""
    shape = gradient_spec(codec, job.numel).shape
    exchange = tw.Exchange({"x": buffer.view(shape)}, codec, _group(job), keep_dense=())
    name = f"{codec} by Exchange.mean_"
    return ExchangeVariant(name, True, exchange.mean_, like.phase, like.planned_bytes, like.mean_bytes)


def _wait(pending: Pending) -> None:
    pending.wait()


def _trace(variant: ExchangeVariant, buffer: torch.Tensor, x: torch.Tensor) -> list[Bar]:
    """One more exchange, traced: the bars of all workers, on rank 0."""
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


def _rows(job: ExchangeJob, variants: list[ExchangeVariant]) -> Iterator[Row]:
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

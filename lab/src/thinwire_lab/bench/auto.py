"""`auto` on real links, net by net: its cells, their workers, and the page that is made of the records.

A worker trains until `auto` has decided, then times its choice beside all that it may take. It is started as
`python -m thinwire_lab.bench.auto JOB_FILE`.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch.distributed as dist

from thinwire.auto.qualities import choices
from thinwire.errors import LabError
from thinwire.perf.calibration import machine_kind
from thinwire.texts import parse_rate
from thinwire_lab.bench.cell import AGAIN, AUTO, BASE, Cell, Record
from thinwire_lab.bench.cell_worker import CellTraining, TimedPhase, measured, meet, take_turns
from thinwire_lab.bench.grid import AutoVerdict, Told, means, read_records, verdict
from thinwire_lab.models import model_card
from thinwire_lab.net.network import LOOPBACK, NETLAB, open_network
from thinwire_lab.net.workers import leave, run_workers
from thinwire_lab.records import RecordFile, commit

NETS = ("mlp", "lstm", "gpt", "resnet20", "alexnet")
RATES = ("20mbit", "100mbit", "300mbit", "1gbit", None)
WORKERS = (2, 4)
SLOW_RATE, SLOW_NUMEL = "20mbit", 1_000_000  # on so slow a link only nets up to this size
LOOPS = 2  # busy ones, beside a busy cell
REPEATS, BUSY_REPEATS = (5, 10), (16, 30)  # at least and at most; beside busy loops single steps vary by half
PAGE = """# auto on real links

Made by `thinwire bench auto` of `{records}`; do not edit. Nets that nothing was tuned on, on 2 or 4 hosts
whose links the kernel shapes (unshaped: loopback). `auto` trains until it has decided; then it, plain DDP
twice, and the three quickest of all codecs that the quality allows take turns. Medians of a step in ms;
"steps": until the decision. SGD nets run with quality balanced, the GPT-like (AdamW, tied weights) with
safe. Asked: at most 5 % slower than plain DDP and 10 % slower than the best choice allowed, each beyond the
spread of DDP against itself (A/A).

Machine: {machines}.
Commits: {commits}.

**It holds in {held} of {count} cells.**

| net | link | workers | DDP | auto took | auto | vs DDP | best allowed | vs best | A/A | steps | holds |
|---|---|---|---|---|---|---|---|---|---|---|---|
"""
WARM_UP_TURNS = 2
SETTLED = 14  # steps after a decision: auto has found the messages by which it watches the link
QUICKEST = 3  # codecs that are timed to the end; slower ones are the best of nothing


@dataclass(frozen=True)
class AutoJob:
    """The job of the workers of a cell."""

    model: str
    workers: int
    quality: str
    batch: int
    seconds: float  # for timing, about
    min_repeats: int
    max_repeats: int


def wanted_cells(
    models: Sequence[str],
    rates: Sequence[str | None],
    workers: Sequence[int],
    busy: bool,
    latency: str | None = None,
) -> list[Cell]:
    """The cells to run, quick ones first; on the slowest link only small nets."""
    return [
        Cell(model, rate, count, busy, latency)
        for rate in reversed(rates)
        for count in workers
        for model in models
        if rate is None or parse_rate(rate) > parse_rate(SLOW_RATE) or _numel(model) <= SLOW_NUMEL
    ]


def _numel(model: str) -> int:
    return sum(parameter.numel() for parameter in model_card(model).build(seed=0).parameters())


def quality_of(model: str) -> str:
    """The least strict quality that is known to retain accuracy with the net's optimizer."""
    return "safe" if model_card(model).optimizer == "adamw" else "balanced"


def run_auto_cells(
    wanted: Sequence[Cell], quality: str | None, seconds: float, path: Path, again: bool, told: Told
) -> Iterator[Record]:
    """Runs the cells that have no record, or all; each record is in the file before the next cell begins."""
    known = set() if again else {Cell.of(record) for record in read_records(path)}
    for cell in wanted:
        if cell in known:
            continue
        repeats = BUSY_REPEATS if cell.busy else REPEATS
        job = AutoJob(cell.model, cell.workers, quality or quality_of(cell.model), 16, seconds, *repeats)
        choices(job.quality, nodes=False)  # a wrong quality is refused before anything is started
        record = _run(cell, job, told)
        RecordFile(path).append(record)
        yield record


def _run(cell: Cell, job: AutoJob, told: Told) -> Record:
    begin = time.perf_counter()
    choice = LOOPBACK if cell.rate is None else NETLAB
    with (
        open_network(cell.rate, cell.workers, choice, latency=cell.latency) as network,
        _busy_loops(LOOPS if cell.busy else 0),
    ):
        for row in run_workers("thinwire_lab.bench.auto", asdict(job), network, cell.workers):
            told(cell, row)
            if row["row"] == "result":
                result = {key: value for key, value in row.items() if key != "row"}
    return {
        **asdict(cell),
        "quality": job.quality,
        "machine": machine_kind(),
        "commit": commit(),
        "cell_s": round(time.perf_counter() - begin, 1),
        **result,
    }


@contextlib.contextmanager
def _busy_loops(count: int) -> Iterator[None]:
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def judged(record: Record) -> AutoVerdict:
    found = verdict(record)
    if found is None:
        raise LabError(f"a record of {Cell.of(record).name} has no times of auto: run it anew, --again")
    return found


def write_page(records: Sequence[Record], page: Path, source: Path) -> str:
    """The page; returns its one-line summary."""
    if not records:
        raise LabError(f"{source} has no records yet: run thinwire bench auto first")
    ordered = sorted(records, key=_place)
    verdicts = [judged(record) for record in ordered]
    held = sum(one.holds for one in verdicts)
    head = PAGE.format(
        records=source.as_posix(),
        machines="; ".join(dict.fromkeys(r["machine"] for r in ordered)),
        commits=", ".join(dict.fromkeys(r["commit"] for r in ordered)),
        held=held,
        count=len(ordered),
    )
    rows = [_row(record, one) for record, one in zip(ordered, verdicts, strict=True)]
    page.write_text(head + "\n".join(rows) + "\n")
    return f"{page}: auto holds in {held} of {len(ordered)} cells"


def _place(record: Record) -> tuple[bool, bool, str, int, float]:
    rate = float("inf") if record["rate"] is None else parse_rate(record["rate"])
    return (
        record.get("latency") is not None,
        record.get("busy", False),
        record["model"],
        record["workers"],
        rate,
    )


def _row(record: Record, found: AutoVerdict) -> str:
    times = means(record)
    cells = (
        record["model"] + (", busy" if record.get("busy") else ""),
        Cell.of(record).link,
        str(record["workers"]),
        f"{times[BASE]:,.0f}",
        f"`{record['took']}`",
        f"{times[AUTO]:,.0f}",
        f"{100 * found.slower_than_ddp:+.0f} %",
        f"`{found.best}`",
        f"{100 * found.slower_than_best:+.0f} %",
        f"{100 * found.spread:.0f} %",
        str(record["auto_steps"]),
        "yes" if found.holds else "**no**",
    )
    return f"| {' | '.join(cells)} |"


def main(path: Path) -> None:
    """Runs in every worker; rank 0 prints the record of the cell."""
    warnings.simplefilter("ignore")  # a codec that leaves a small model dense is one that auto may try, too
    job = AutoJob(**json.loads(path.read_text()))
    meet(path)
    training = CellTraining(AUTO, job.model, job.batch, job.quality)
    begin = time.perf_counter()
    steps = training.decide()
    decide_s = time.perf_counter() - begin
    for _ in range(SETTLED):
        training.step()
    autotuner = training.compressor.auto.autotuner
    decision = autotuner.decision.to_dict() if autotuner.decision is not None else None
    variants = [TimedPhase(AUTO, training)]
    for hook in (BASE, AGAIN, *choices(job.quality, nodes=False)):
        variants.append(TimedPhase(hook, CellTraining(hook, job.model, job.batch)))
    for _ in range(WARM_UP_TURNS):
        for variant in variants:
            variant.turn()
    variants = variants[:3] + sorted(variants[3:], key=lambda one: one.last_s)[:QUICKEST]
    repeats = take_turns(variants, job.seconds, job.min_repeats, job.max_repeats)
    if dist.get_rank() == 0:
        told = {
            "auto_steps": steps,
            "decide_s": round(decide_s, 2),
            "took": autotuner.codec,
            "decision": decision,
        }
        record = {
            **measured(variants),
            **told,
            "decided_again": len(autotuner.decisions) - 1,
            "repeats": repeats,
        }
        print(json.dumps({"row": "result", **record}), flush=True)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

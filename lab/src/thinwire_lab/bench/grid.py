"""The grid: cells run one after the other; each that is finished is one line of a file."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import thinwire
from thinwire.errors import LabError
from thinwire.perf.machine import machine_kind
from thinwire.plans.wire_version import WIRE_VERSION
from thinwire_lab.bench.cell import AGAIN, AUTO, AUTO_QUALITY, BASE, Cell, CellJob, Record
from thinwire_lab.bench.step import check_hooks
from thinwire_lab.models import model_card
from thinwire_lab.net.network import LOOPBACK, NETLAB, open_network
from thinwire_lab.net.workers import run_workers

RECORDS = Path("docs/records/grid.jsonl")
Told = Callable[[Cell, Record], None]  # how far a cell is


def job_of(
    cell: Cell,
    codecs: Sequence[str],
    others: Sequence[str],
    batch: int,
    seconds: float,
    max_repeats: int,
    probe_s: float = 1.5,
) -> CellJob:
    """What the workers of a cell are told, checked before any of them is started."""
    model_card(cell.model)
    check_hooks([*codecs, *(hook for hook in others if hook != AUTO)])
    if cell.workers < 2:
        raise LabError(f"workers={cell.workers}: a cell has at least 2, or there is nothing to exchange")
    if clash := {BASE, AGAIN} & {*codecs, *others}:
        raise LabError(f"{', '.join(sorted(clash))} is run in every cell: leave it out of the codecs")
    repeats = min(3, max_repeats), max_repeats
    hooks = tuple(codecs), tuple(others)
    return CellJob(cell.model, cell.rate, cell.workers, *hooks, batch, seconds, *repeats, probe_s)


def run_cell(cell: Cell, job: CellJob, told: Told) -> Record:
    """Shaped by netlab's kernel, or unshaped over loopback: a link that is only emulated slows no DDP."""
    begin = time.perf_counter()
    with open_network(cell.rate, cell.workers, LOOPBACK if cell.rate is None else NETLAB) as network:
        for row in run_workers("thinwire_lab.bench.cell_worker", asdict(job), network, cell.workers):
            told(cell, row)
            if row["row"] == "result":
                result = {key: value for key, value in row.items() if key != "row"}
    return {
        **asdict(cell),
        "batch": job.batch,
        "codecs": list(job.codecs),
        "others": list(job.others),
        "auto_quality": AUTO_QUALITY,
        "network": network.kind,
        "machine": machine_kind(),
        "version": thinwire.__version__,
        "wire_version": WIRE_VERSION,
        "commit": commit(),
        "cell_s": round(time.perf_counter() - begin, 1),
        **result,
    }


def run_grid(wanted: Sequence[tuple[Cell, CellJob]], path: Path, again: bool, told: Told) -> Iterator[Record]:
    """Runs the cells that have no record, or all; each record is in the file before the next cell begins."""
    known = set() if again else {Cell.of(record) for record in read_records(path)}
    for cell, job in wanted:
        if cell in known:
            continue
        record = run_cell(cell, job, told)
        append(path, record)
        yield record


def append(path: Path, record: Record) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps(record) + "\n")
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): give another --records") from error


def read_records(path: Path) -> list[Record]:
    """The last record of every cell; a line that was cut off is passed over, its cell is run again."""
    if not path.exists():
        return []
    found: dict[Cell, Record] = {}
    for line in path.read_text().splitlines():
        record = _parsed(line)
        if record is not None:
            found[Cell.of(record)] = record
    return list(found.values())


def _parsed(line: str) -> Record | None:
    try:
        record: Any = json.loads(line)
        Cell.of(record)
    except (ValueError, KeyError, TypeError):
        return None
    return dict(record)


def commit() -> str:
    """The commit that is measured, with a + if files were changed since; "unknown" without a repository."""
    try:
        folder = Path(__file__).parent
        run = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=folder, capture_output=True, text=True, check=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return run.stdout.strip()

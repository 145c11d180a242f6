"""The grid: cells run one after the other, each recorded; errors of forecasts, and what `auto` gains."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import thinwire
from thinwire.errors import LabError
from thinwire.perf.calibration import machine_kind
from thinwire.plans.lane import WIRE_VERSION
from thinwire_lab.bench.cell import AGAIN, AUTO, AUTO_QUALITY, BASE, Cell, CellJob, Record
from thinwire_lab.bench.step import check_hooks
from thinwire_lab.models import model_card
from thinwire_lab.net.network import LOOPBACK, NETLAB, open_network
from thinwire_lab.net.workers import run_workers
from thinwire_lab.records import RecordFile, commit

RECORDS = Path("docs/records/grid.jsonl")
Told = Callable[[Cell, Record], None]  # how far a cell is
SLOWER = 0.05  # than DDP, beyond the spread: what auto may be
WORSE = 0.10  # than the best single codec, beyond the spread


def job_of(
    cell: Cell,
    codecs: Sequence[str],
    others: Sequence[str],
    batch: int,
    seconds: float,
    max_repeats: int,
    probe_s: float = 1.5,
) -> CellJob:
    """The job of the workers of a cell, checked before any of them is started."""
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
    """Runs a cell over netlab, or over loopback without a rate: an emulated link would not slow DDP."""
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
        RecordFile(path).append(record)
        yield record


def read_records(path: Path) -> list[Record]:
    """The last record of every cell; damaged lines are passed over, their cells are run again."""
    found = RecordFile(path).read(lambda record: (Cell.of(record), dict(record)), skip_damaged=True)
    return list(dict(found).values())


@dataclass(frozen=True)
class ForecastPoint:
    """A hook, or a phase of one, in a cell: what was forecast and what was measured."""

    cell: Cell
    name: str
    forecast_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Error of the forecast relative to the measurement; negative if the forecast was too fast."""
        return self.forecast_ms / self.measured_ms - 1


def points(records: Iterable[Record]) -> list[ForecastPoint]:
    return [
        ForecastPoint(Cell.of(record), name, forecast, record["measured_ms"][name])
        for record in records
        for name, forecast in record["forecast_ms"].items()
    ]


@dataclass(frozen=True)
class Errors:
    """How far off forecasts are, without their sign."""

    count: int
    median: float
    ninetieth: float

    @classmethod
    def of(cls, made: Sequence[ForecastPoint]) -> Errors:
        sizes = sorted(abs(point.error) for point in made)
        if not sizes:
            return cls(0, float("nan"), float("nan"))
        at = 0.9 * (len(sizes) - 1)
        low = int(at)
        high = min(low + 1, len(sizes) - 1)
        return cls(len(sizes), statistics.median(sizes), sizes[low] + (at - low) * (sizes[high] - sizes[low]))


def means(record: Record) -> dict[str, float]:
    """Milliseconds by hook, phases weighed by their share of the steps."""
    found: dict[str, float] = {}
    for name, measured in record["measured_ms"].items():
        share = record["shares"].get(name)
        hook = name if share is None else name.rpartition(" ")[0]
        weight = 1.0 if share is None else share / _all_shares(record, hook)
        found[hook] = found.get(hook, 0.0) + weight * measured
    return found


def _all_shares(record: Record, hook: str) -> float:
    shares: dict[str, float] = record["shares"]
    return sum(share for name, share in shares.items() if name.rpartition(" ")[0] == hook)


@dataclass(frozen=True)
class AutoVerdict:
    """How much slower `auto` is than DDP and the best codec; `spread` is that of DDP against itself."""

    cell: Cell
    best: str
    slower_than_ddp: float
    slower_than_best: float
    spread: float

    @property
    def holds(self) -> bool:
        return self.slower_than_ddp <= SLOWER + self.spread and self.slower_than_best <= WORSE + self.spread


def spread(record: Record) -> float:
    """The spread of DDP against itself: the quartile of their ratio, turn by turn, that is farther from 1."""
    quartiles: list[float] = record["aa_quartiles"]
    return max(abs(quartile - 1) for quartile in quartiles)


def verdict(record: Record) -> AutoVerdict | None:
    """The verdict on `auto`, None if it was not run. Plain DDP counts as a codec too."""
    times = means(record)
    if AUTO not in times:
        return None
    single = {hook: ms for hook, ms in times.items() if hook not in (AUTO, AGAIN)}
    best = min(single, key=lambda hook: single[hook])
    return AutoVerdict(
        Cell.of(record),
        best,
        times[AUTO] / times[BASE] - 1,
        times[AUTO] / single[best] - 1,
        spread(record),
    )

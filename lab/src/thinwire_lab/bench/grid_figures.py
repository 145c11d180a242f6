"""The figures of a grid: how far off forecasts are, and what `auto` gains or costs."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinwire_lab.bench.cell import AGAIN, AUTO, BASE, Cell, Record

SLOWER = 0.05  # than DDP, beyond the spread: what auto may be
WORSE = 0.10  # than the best single codec, beyond the spread


@dataclass(frozen=True)
class Point:
    """A hook, or a phase of one, in a cell: what was forecast and what was measured."""

    cell: Cell
    name: str
    forecast_ms: float
    measured_ms: float

    @property
    def error(self) -> float:
        """Of the forecast, as a share of what was measured: below 0 if it was too quick."""
        return self.forecast_ms / self.measured_ms - 1


def points(records: Iterable[Record]) -> list[Point]:
    return [
        Point(Cell.of(record), name, forecast, record["measured_ms"][name])
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
    def of(cls, made: Sequence[Point]) -> Errors:
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
class Verdict:
    """`auto` in a cell, in shares of what it is compared with; `spread` is that of DDP against itself."""

    cell: Cell
    best: str
    slower_than_ddp: float
    slower_than_best: float
    spread: float

    @property
    def holds(self) -> bool:
        return self.slower_than_ddp <= SLOWER + self.spread and self.slower_than_best <= WORSE + self.spread


def spread(record: Record) -> float:
    """Of DDP against itself: the farther quartile of their ratio, turn by turn."""
    quartiles: list[float] = record["aa_quartiles"]
    return max(abs(quartile - 1) for quartile in quartiles)


def verdict(record: Record) -> Verdict | None:
    """None where `auto` was not run. The best single codec may be none: plain DDP is one of them."""
    times = means(record)
    if AUTO not in times:
        return None
    single = {hook: ms for hook, ms in times.items() if hook not in (AUTO, AGAIN)}
    best = min(single, key=lambda hook: single[hook])
    return Verdict(
        Cell.of(record),
        best,
        times[AUTO] / times[BASE] - 1,
        times[AUTO] / single[best] - 1,
        spread(record),
    )

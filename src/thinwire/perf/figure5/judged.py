"""The judgement: every cell's error, and whether the held-out ones are within what is asked of the model."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from thinwire.perf.figure5.cells import CLUSTERS, Cell, cells
from thinwire.perf.figure5.fit import Cluster, fit, latency_cell

MEDIAN_LIMIT = 0.08
CELL_LIMIT = 0.15  # beyond what digitising may be off


@dataclass(frozen=True)
class Judged:
    """A cell and what the model says of it. `role`: fitted, held out, or seen (its latency was fitted)."""

    cell: Cell
    images_per_s: float
    role: str

    @property
    def error(self) -> float:
        return self.images_per_s / self.cell.images_per_s - 1

    @property
    def beyond_blur(self) -> float:
        """The error that digitising cannot explain."""
        return max(0.0, abs(self.error) - self.cell.blur / self.cell.images_per_s)


@dataclass(frozen=True)
class Table:
    """All cells under one pair of fitted clusters."""

    clusters: dict[str, Cluster]
    rows: tuple[Judged, ...]

    @property
    def held_out(self) -> list[Judged]:
        return [row for row in self.rows if row.role == "held out"]

    @property
    def median_error(self) -> float:
        return statistics.median(abs(row.error) for row in self.held_out)

    @property
    def worst(self) -> Judged:
        return max(self.held_out, key=lambda row: row.beyond_blur)

    @property
    def outside(self) -> list[Judged]:
        """Held-out cells that are further off than allowed."""
        return [row for row in self.held_out if row.beyond_blur > CELL_LIMIT]

    @property
    def reached(self) -> bool:
        return self.median_error <= MEDIAN_LIMIT and not self.outside


def judge(with_latency: bool = False) -> Table:
    """Fits both clusters and judges all cells; latency is assumed, or fitted on one 512-GPU cell of each."""
    seen = {name: latency_cell(name) if with_latency else None for name in CLUSTERS}
    clusters = {name: fit(name, seen=seen[name]) for name in CLUSTERS}

    def role(cell: Cell) -> str:
        return "seen" if cell == seen[cell.cluster] else "held out" if cell.held_out else "fitted"

    rows = tuple(Judged(cell, clusters[cell.cluster].images_per_s(cell), role(cell)) for cell in cells())
    return Table(clusters, rows)

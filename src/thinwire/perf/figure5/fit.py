"""The fit: parameters of the paper's two clusters, from cells of up to 16 GPUs, by weighted least squares.

A cell's step takes, with |g| bytes on the wire, n elements, i nodes of j GPUs, batch K:

    K / rate  +  2 (j-1)/j |g| / B_inside  +  n c [ternary]
              +  [i > 1] (|g| / B_staging  +  copies(i) |g| / B  +  2 (i-1) a)

which is linear in what is sought. Nothing overlaps: the paper's model has no such term. copies(i) is
2 (i-1)/i in a ring; where cells of 8 and 16 GPUs refuse that, it is 1 at two nodes and 2 from four on.
Latency a cannot be seen in these cells: it is assumed (the link's default), or fitted with one cell of 512.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thinwire.perf.figure5.cells import (
    BATCHES,
    ETHERNET,
    INFINIBAND,
    NETWORKS,
    TERNARY,
    Cell,
    cells,
    wire_bytes,
)
from thinwire.perf.link import link_named

RING, TWO_COPIES = "ring", "one copy at 2 nodes, two from 4 on"
MODEL_BLUR = 0.01  # a model that is right to a percent is right
CLEARLY = 2.0  # times less misfit, before another form than the ring is believed
ASSUMED_LATENCY_S = {
    ETHERNET: link_named("1gbit").latency_s,
    INFINIBAND: link_named("ib100").latency_s,
}
PARAMETERS = (*NETWORKS, "inside", "staging", "network", "codec", "latency")
Row = NDArray[np.float64]


@dataclass(frozen=True)
class Cluster:
    """A fitted cluster: seconds of a batch, seconds a byte of each way, seconds an element, latency."""

    name: str
    form: str
    batches: Mapping[str, int]
    compute_s: Mapping[str, float]
    inside: float
    staging: float
    network: float
    codec: float
    latency_s: float
    misfit: float  # sum of squared errors in units of digitising and model blur, over the fitted cells

    def step_s(self, cell: Cell) -> float:
        row = _row(cell, self.form, self.batches)
        values = [
            *self.compute_s.values(),
            self.inside,
            self.staging,
            self.network,
            self.codec,
            self.latency_s,
        ]
        return float(row @ np.array(values))

    def images_per_s(self, cell: Cell) -> float:
        return cell.gpus * self.batches[cell.network] / self.step_s(cell)


def fit(
    cluster: str,
    form: str | None = None,
    batches: Mapping[str, int] = BATCHES,
    seen: Cell | None = None,
) -> Cluster:
    """Fits the cells of up to 16 GPUs; `seen` is one cell beyond, from which latency is fitted too.

    Without a form: the ring, unless the fitted cells clearly refuse it.
    """
    if form is None:
        ring, copies = (fit(cluster, one, batches, seen) for one in (RING, TWO_COPIES))
        return copies if CLEARLY * copies.misfit < ring.misfit else ring
    known = [cell for cell in cells(cluster) if not cell.held_out]
    assumed = ASSUMED_LATENCY_S[cluster] if seen is None else None
    used = known if seen is None else [*known, seen]
    rows = np.array([_row(cell, form, batches) for cell in used])
    times = np.array([cell.gpus * batches[cell.network] / cell.images_per_s for cell in used])
    blurs = times * np.array([_blur(cell) for cell in used])
    if assumed is not None:
        times = times - rows[:, -1] * assumed
        rows[:, -1] = 0.0
    found = _least_squares(rows / blurs[:, None], times / blurs)
    misfit = float((((rows @ found - times) / blurs) ** 2).sum())
    *compute, inside, staging, network, codec, latency = map(float, found)
    return Cluster(
        cluster,
        form,
        batches,
        dict(zip(NETWORKS, compute, strict=True)),
        inside,
        staging,
        network,
        codec,
        latency if assumed is None else assumed,
        misfit,
    )


def _blur(cell: Cell) -> float:
    return float(np.hypot(cell.blur / cell.images_per_s, MODEL_BLUR))


def _row(cell: Cell, form: str, batches: Mapping[str, int]) -> Row:
    """What each parameter is multiplied by in a cell's step time."""
    network = NETWORKS[cell.network]
    nbytes, nodes, gpus = wire_bytes(network, cell.wire), cell.nodes, cell.gpus_a_node
    return np.array(
        [
            *(float(name == cell.network) for name in NETWORKS),
            2 * (gpus - 1) / gpus * nbytes,
            (nodes > 1) * nbytes,
            _copies(nodes, form) * nbytes,
            (cell.wire == TERNARY) * network.numel,
            2.0 * (nodes - 1),
        ]
    )


def _copies(nodes: int, form: str) -> float:
    if form == RING:
        return 2 * (nodes - 1) / nodes
    return float(min(2, nodes - 1))


def _least_squares(rows: Row, values: Row) -> Row:
    """Least squares with nothing below zero: the most negative parameter is left out, until none is."""
    scale = np.linalg.norm(rows, axis=0)
    used = [column for column in range(rows.shape[1]) if scale[column] > 0]
    while True:
        solved = np.linalg.lstsq(rows[:, used] / scale[used], values, rcond=None)[0]
        if (solved >= 0).all():
            break
        used.pop(int(solved.argmin()))
    found = np.zeros(rows.shape[1])
    found[used] = solved / scale[used]
    return found


def latency_cell(cluster: str) -> Cell:
    """The cell of 512 GPUs that says most of latency: the one with the least bytes."""
    largest = [cell for cell in cells(cluster) if cell.gpus == 512]
    return min(largest, key=lambda cell: wire_bytes(NETWORKS[cell.network], cell.wire))


def misfits(cluster: str, choices: Sequence[Mapping[str, int]]) -> list[float]:
    """How badly the fitted cells are met with other batches; what chose AlexNet's."""
    return [fit(cluster, None, batches).misfit for batches in choices]

"""TernGrad's Figure 5: its cells, a model fitted on those of few GPUs, and its errors on the others.

Images per second were digitised from the vectors of the authors' poster. The parameters of the paper's two
clusters come from cells of up to 16 GPUs, by weighted least squares. A cell's step takes, with |g| bytes on
the wire, n elements, i nodes of j GPUs, batch K:

    K / rate  +  2 (j-1)/j |g| / B_inside  +  n c [ternary]
              +  [i > 1] (|g| / B_staging  +  copies(i) |g| / B  +  2 (i-1) a)

which is linear in what is sought. Nothing overlaps: the paper's model has no such term. copies(i) is
2 (i-1)/i in a ring; where cells of 8 and 16 GPUs refuse that, it is 1 at two nodes and 2 from four on.
Latency a cannot be seen in these cells: it is assumed (the link's default), or fitted with one cell of 512.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from thinwire.perf.link import link_named
from thinwire.perf.network import LAST, Network
from thinwire.perf.networks import alexnet, googlenet, vgg_a

ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"
FLOAT, TERNARY = "float", "ternary"
GPUS = tuple(2**k for k in range(10))
GPUS_A_NODE = 4
FITTED_UP_TO = 16  # GPUs: cells beyond are predicted, and judged

NETWORKS: dict[str, Network] = {network.name: network for network in (alexnet(), googlenet(), vgg_a())}
# Images a GPU and step. The paper says 128 for AlexNet; with the links of the other networks only 256 fits.
BATCHES = {"alexnet": 256, "googlenet": 64, "vgg-a": 32}
STATED_BATCHES = {**BATCHES, "alexnet": 128}
CLUSTERS = {
    ETHERNET: "128 nodes of 4 GTX 1080, PCI switch, 1 Gbit/s Ethernet",
    INFINIBAND: "128 nodes of 4 P100, NVLink, 100 Gbit/s InfiniBand",
}

_ROWS = {
    (ETHERNET, "alexnet", FLOAT): (394, 758, 1503, 719, 830, 1667, 3250, 6542, 13042, 25708),
    (ETHERNET, "alexnet", TERNARY): (387, 768, 1536, 2189, 3459, 6833, 13625, 26958, 53125, 99416),
    (ETHERNET, "googlenet", FLOAT): (174, 348, 692, 850, 1283, 2500, 4917, 9708, 19000, 36541),
    (ETHERNET, "googlenet", TERNARY): (174, 348, 696, 1231, 2327, 4458, 8792, 17167, 33167, 62541),
    (ETHERNET, "vgg-a", FLOAT): (95, 167, 318, 49, 53, 125, 208, 417, 833, 1667),
    (ETHERNET, "vgg-a", TERNARY): (89, 174, 351, 322, 420, 875, 1667, 3250, 6417, 12583),
    (INFINIBAND, "alexnet", FLOAT): (436, 867, 1734, 2786, 5301, 10349, 20403, 40707, 80922, 161548),
    (INFINIBAND, "alexnet", TERNARY): (427, 854, 1712, 3347, 6651, 13208, 26514, 52929, 105661, 211224),
    (INFINIBAND, "googlenet", FLOAT): (194, 388, 776, 1501, 2972, 5914, 11828, 23557, 46917, 93932),
    (INFINIBAND, "googlenet", TERNARY): (194, 388, 772, 1540, 3071, 6111, 12222, 24543, 48987, 97973),
    (INFINIBAND, "vgg-a", FLOAT): (108, 207, 410, 405, 720, 1282, 2661, 5126, 10251, 20304),
    (INFINIBAND, "vgg-a", TERNARY): (95, 194, 388, 716, 1410, 2760, 5520, 11138, 22177, 44256),
}
RING, TWO_COPIES = "ring", "one copy at 2 nodes, two from 4 on"
MODEL_BLUR = 0.01  # a model that is right to a percent is right
CLEARLY = 2.0  # times less misfit, before another form than the ring is believed
ASSUMED_LATENCY_S = {
    ETHERNET: link_named("1gbit").latency_s,
    INFINIBAND: link_named("ib100").latency_s,
}
PARAMETERS = (*NETWORKS, "inside", "staging", "network", "codec", "latency")
Row = NDArray[np.float64]
MEDIAN_LIMIT = 0.08
CELL_LIMIT = 0.15  # beyond what digitising may be off


@dataclass(frozen=True)
class PublishedCell:
    """One bar of the figure; `blur`: how far off digitising may be, in images per second."""

    cluster: str
    network: str
    wire: str
    gpus: int
    images_per_s: float

    @property
    def blur(self) -> float:
        """The resolution of the inset (up to 16 GPUs) and of the two large panels."""
        if self.gpus <= FITTED_UP_TO:
            return 3.0
        return 21.0 if self.cluster == ETHERNET else 49.0

    @property
    def nodes(self) -> int:
        return -(-self.gpus // GPUS_A_NODE)

    @property
    def gpus_a_node(self) -> int:
        return min(self.gpus, GPUS_A_NODE)

    @property
    def held_out(self) -> bool:
        return self.gpus > FITTED_UP_TO


def cells(cluster: str | None = None) -> list[PublishedCell]:
    """All bars, or those of one cluster."""
    return [
        PublishedCell(where, network, wire, gpus, value)
        for (where, network, wire), row in _ROWS.items()
        for gpus, value in zip(GPUS, row, strict=True)
        if cluster in (None, where)
    ]


def wire_bytes(network: Network, wire: str) -> float:
    """|g| as the paper counts it: 4 bytes an element, or 2 bits of all but the last layer, in both ways."""
    if wire == FLOAT:
        return 4.0 * network.numel
    last = sum(layer.numel for layer in network.layers if layer.kind == LAST)
    return 4.0 * last + (network.numel - last) / 4


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

    def step_s(self, cell: PublishedCell) -> float:
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

    def images_per_s(self, cell: PublishedCell) -> float:
        return cell.gpus * self.batches[cell.network] / self.step_s(cell)


def fit(
    cluster: str,
    form: str | None = None,
    batches: Mapping[str, int] = BATCHES,
    seen: PublishedCell | None = None,
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


def _blur(cell: PublishedCell) -> float:
    return float(np.hypot(cell.blur / cell.images_per_s, MODEL_BLUR))


def _row(cell: PublishedCell, form: str, batches: Mapping[str, int]) -> Row:
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


def latency_cell(cluster: str) -> PublishedCell:
    """The cell of 512 GPUs that says most of latency: the one with the least bytes."""
    largest = [cell for cell in cells(cluster) if cell.gpus == 512]
    return min(largest, key=lambda cell: wire_bytes(NETWORKS[cell.network], cell.wire))


def misfits(cluster: str, choices: Sequence[Mapping[str, int]]) -> list[float]:
    """How badly the fitted cells are met with other batches; what chose AlexNet's."""
    return [fit(cluster, None, batches).misfit for batches in choices]


@dataclass(frozen=True)
class Judged:
    """A cell and what the model says of it. `role`: fitted, held out, or seen (its latency was fitted)."""

    cell: PublishedCell
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

    def role(cell: PublishedCell) -> str:
        return "seen" if cell == seen[cell.cluster] else "held out" if cell.held_out else "fitted"

    rows = tuple(Judged(cell, clusters[cell.cluster].images_per_s(cell), role(cell)) for cell in cells())
    return Table(clusters, rows)

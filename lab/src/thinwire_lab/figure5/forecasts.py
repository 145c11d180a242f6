"""Figure 5 as tables and pictures, and what the model says of thinwire's formats on the paper's clusters.

The clusters are the fitted ones (their latency from one 512-GPU cell), with up to 10,000 workers. The
exchange is thinwire's: exact bytes from its plans, buckets that overlap with the backward pass, codecs on the
GPU at assumed speeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.perf.forecast import DENSE, Forecast, Setting, forecast
from thinwire.perf.link import LinkModel, Topology, link_named
from thinwire.perf.network import device_named
from thinwire.perf.sweep import Cells, number
from thinwire_lab.figure5.model import (
    CELL_LIMIT,
    CLUSTERS,
    ETHERNET,
    FITTED_UP_TO,
    FLOAT,
    GPUS,
    GPUS_A_NODE,
    MEDIAN_LIMIT,
    NETWORKS,
    RING,
    STATED_BATCHES,
    TERNARY,
    TWO_COPIES,
    Cluster,
    Judged,
    Table,
    fit,
)
from thinwire_lab.report.drawing import bare, colours, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes


CODECS = (DENSE, "fp16", "terngrad", "qsgd:4", "gradiveq:8,layers=all", "fft:0.85", "topk:0.01")
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2500)
_DEVICES = {ETHERNET: "gtx1080"}
# float pale, ternary strong, a hue for each network
BARS = {
    ("alexnet", FLOAT): "#a9cfe5",
    ("alexnet", TERNARY): "#0072b2",
    ("googlenet", FLOAT): "#a3d9c8",
    ("googlenet", TERNARY): "#009e73",
    ("vgg-a", FLOAT): "#f2c4a0",
    ("vgg-a", TERNARY): "#d55e00",
}


@dataclass(frozen=True)
class CodecCurve:
    """One codec on one cluster and network: a forecast for each number of nodes."""

    cluster: str
    network: str
    codec: str
    forecasts: tuple[Forecast, ...]


def curves(
    clusters: dict[str, Cluster], codecs: Sequence[str] = CODECS, nodes: Sequence[int] = NODES
) -> list[CodecCurve]:
    """All codecs on both clusters and all three networks."""
    return [
        CodecCurve(
            cluster.name,
            name,
            codec,
            tuple(forecast(codec, setting_of(cluster, name, count)) for count in nodes),
        )
        for cluster in clusters.values()
        for name in NETWORKS
        for codec in codecs
    ]


def setting_of(cluster: Cluster, network: str, nodes: int) -> Setting:
    """The fitted cluster in the model's own nouns; staging, paid once a byte, is part of the bandwidth."""
    inter_s = cluster.network + cluster.staging / 2
    default = link_named("1gbit" if cluster.name == ETHERNET else "ib100")
    inter = LinkModel(f"fitted {cluster.name}", cluster.latency_s, 1 / inter_s, default.message_s, "fitted")
    intra = LinkModel("fitted bus", 10e-6, 1 / cluster.inside, 1e-6, "fitted; 10 us assumed")
    device = device_named(_DEVICES.get(cluster.name, "p100"))
    batch = cluster.batches[network]
    return Setting.of(
        NETWORKS[network].with_batch(batch),
        Topology(nodes, GPUS_A_NODE, inter, intra),
        device,
        batch / cluster.compute_s[network],
    )


def errors(table: Table) -> Cells:
    """A line for each row of the figure: the model's error in every cell, in percent.

    Fitted cells are in brackets; a cell from which latency was fitted is in angles.
    """
    heads = ["cluster, network, wire", *(f"{gpus}" for gpus in GPUS)]
    marks = {"fitted": "({})", "seen": "<{}>", "held out": "{}"}
    lines: dict[str, list[str]] = {}
    for row in table.rows:
        name = f"{row.cell.cluster}, {row.cell.network}, {row.cell.wire}"
        lines.setdefault(name, []).append(marks[row.role].format(f"{100 * row.error:+.1f}"))
    return heads, [[name, *cells] for name, cells in lines.items()]


def parameters(table: Table) -> Cells:
    """What was fitted, in the units of data sheets."""
    clusters = list(table.clusters.values())
    rows = [
        ["form", *(cluster.form for cluster in clusters)],
        *(
            [f"{name}, images a second and GPU", *(_rate(cluster, name) for cluster in clusters)]
            for name in NETWORKS
        ),
        ["inside a node", *(_bandwidth(cluster.inside) for cluster in clusters)],
        ["staging, once if nodes > 1", *(_bandwidth(cluster.staging) for cluster in clusters)],
        ["network", *(_bandwidth(cluster.network) for cluster in clusters)],
        ["codec, ns an element", *(f"{1e9 * cluster.codec:.3f}" for cluster in clusters)],
        ["latency a hop", *(f"{1e6 * cluster.latency_s:.1f} us" for cluster in clusters)],
        ["misfit of the fitted cells", *(f"{cluster.misfit:.1f}" for cluster in clusters)],
    ]
    return ["parameter", *(cluster.name for cluster in clusters)], rows


def alternatives() -> Cells:
    """What the fitted cells say of other forms, and of the batch that the paper states for AlexNet."""
    names = list(CLUSTERS)
    rows = [
        ["ring", *(f"{fit(name, RING).misfit:.0f}" for name in names)],
        [TWO_COPIES, *(f"{fit(name, TWO_COPIES).misfit:.0f}" for name in names)],
        [
            "the better of them, AlexNet's batch 128",
            *(f"{fit(name, None, STATED_BATCHES).misfit:.0f}" for name in names),
        ],
    ]
    return ["misfit, cells up to 16 GPUs", *names], rows


def verdict(table: Table) -> str:
    """One sentence: whether the goal is met, and the worst cell."""
    worst = table.worst
    met = "met" if table.reached else "NOT met"
    cell = f"{worst.cell.cluster}, {worst.cell.network}, {worst.cell.wire}, {worst.cell.gpus} GPUs"
    return (
        f"{len(table.held_out)} held-out cells: median error {table.median_error:.1%} "
        f"(goal {MEDIAN_LIMIT:.0%}), worst {worst.error:+.1%} ({cell}; "
        f"goal {CELL_LIMIT:.0%} beyond what digitising may be off): {met}"
    )


def ours(curves: Sequence[CodecCurve], gpus: int) -> Cells:
    """Speed against dense of every codec at one number of GPUs; dense in images a second."""
    codecs = list(dict.fromkeys(curve.codec for curve in curves))
    found = {(curve.cluster, curve.network, curve.codec): curve for curve in curves}
    heads = [f"{gpus:,} GPUs", "dense, images/s", *(codec for codec in codecs if codec != DENSE)]
    rows = []
    for cluster, network in dict.fromkeys((curve.cluster, curve.network) for curve in curves):
        at = {codec: _at(found[cluster, network, codec], gpus) for codec in codecs}
        dense = at[DENSE]
        assert dense is not None
        others = (_against(at[codec], dense) for codec in codecs if codec != DENSE)
        rows.append([f"{cluster}, {network}", number(dense), *others])
    return heads, rows


def _against(value: float | None, dense: float) -> str:
    return "cannot" if value is None else f"{value / dense:.2f}x"


def _at(curve: CodecCurve, gpus: int) -> float | None:
    one = next(made for made in curve.forecasts if made.setting.topology.workers == gpus)
    return None if one.refusal else one.examples_per_s


def _rate(cluster: Cluster, network: str) -> str:
    return f"{cluster.batches[network] / cluster.compute_s[network]:.1f}"


def _bandwidth(seconds_a_byte: float) -> str:
    if not seconds_a_byte:
        return "not seen"
    return f"{1e-6 / seconds_a_byte:,.0f} MB/s"


def write_beside(table: Table, path: Path) -> None:
    """Each cluster in a row: the paper's bars, the model's, and the model's error where it was not fitted."""
    figure = new_figure(16, 8)
    grid = figure.subplots(2, 3, sharex=True)
    for (paper, model, error), cluster in zip(grid, CLUSTERS, strict=True):
        rows = [row for row in table.rows if row.cell.cluster == cluster]
        _bars(paper, rows, f"{cluster}: the paper, digitised", paper=True)
        _bars(model, rows, f"{cluster}: this model", paper=False)
        model.set_ylim(paper.get_ylim())
        _errors(error, rows, f"{cluster}: error of the model")
    for axes in grid[1]:
        axes.set_xticks(range(len(GPUS)), [str(gpus) for gpus in GPUS])
        axes.set_xlabel("GPUs, 4 a node")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=6, frameon=False)
    figure.suptitle("TernGrad, Figure 5: images a second; cells right of the dotted line were not fitted")
    save(figure, path)


def _bars(axes: Axes, rows: Sequence[Judged], title: str, paper: bool) -> None:
    width = 0.13
    for k, (network, wire) in enumerate(BARS):
        found = [row for row in rows if (row.cell.network, row.cell.wire) == (network, wire)]
        values = [row.cell.images_per_s if paper else row.images_per_s for row in found]
        places = [place + (k - 2.5) * width for place in range(len(values))]
        axes.bar(places, values, width, color=BARS[network, wire], label=f"{network} {wire}")
    axes.set_yscale("log")
    axes.set_title(title, fontsize="medium")
    axes.set_ylabel("images a second")
    _end_of_fit(axes)


def _errors(axes: Axes, rows: Sequence[Judged], title: str) -> None:
    for network, wire in BARS:
        found = [row for row in rows if (row.cell.network, row.cell.wire) == (network, wire)]
        style = "o--" if wire == FLOAT else "o-"
        axes.plot([100 * row.error for row in found], style, color=BARS[network, wire], markersize=4)
    axes.axhspan(-15, 15, color="#f3f4f6", zorder=0)
    axes.set_ylim(-25, 25)
    axes.set_title(title, fontsize="medium")
    axes.set_ylabel("percent")
    _end_of_fit(axes)


def _end_of_fit(axes: Axes) -> None:
    axes.axvline(GPUS.index(FITTED_UP_TO) + 0.5, color="#6b7280", linestyle=":")
    bare(axes)


def write_ours(curves: Sequence[CodecCurve], path: Path) -> None:
    """Speed against dense of every codec, a panel for each cluster and network."""
    figure = new_figure(14, 8)
    grid = figure.subplots(2, 3, sharex=True)
    palette = colours([DENSE, *(curve.codec for curve in curves)])
    for line, cluster in zip(grid, CLUSTERS, strict=True):
        for axes, network in zip(line, NETWORKS, strict=True):
            found = [c for c in curves if (c.cluster, c.network) == (cluster, network)]
            _speeds(axes, found, palette)
            axes.set_title(f"{cluster}, {network}", fontsize="medium")
    for axes in grid[1]:
        axes.set_xlabel("GPUs, 4 a node")
    for line in grid:
        line[0].set_ylabel("times as fast as dense")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(palette), frameon=False)
    figure.suptitle(
        "thinwire's formats on the clusters of TernGrad's Figure 5: a forecast, not a measurement"
    )
    save(figure, path)


def _speeds(axes: Axes, curves: Sequence[CodecCurve], palette: dict[str, str]) -> None:
    dense = next(curve for curve in curves if curve.codec == DENSE)
    for curve in curves:
        points = [
            (one.setting.topology.workers, base.step_s / one.step_s)
            for one, base in zip(curve.forecasts, dense.forecasts, strict=True)
            if one.refusal is None
        ]
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            ".-",
            color=palette[curve.codec],
            label=curve.codec,
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks([4, 16, 64, 256, 1024, 10_000], ["4", "16", "64", "256", "1,024", "10,000"])
    axes.set_yscale("log")
    axes.set_ylim(0.05, 20)
    axes.set_yticks(
        [0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20], ["0.05", "0.1", "0.2", "0.5", "1", "2", "5", "10", "20"]
    )
    axes.minorticks_off()
    bare(axes)

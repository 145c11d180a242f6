"""Pictures of Figure 5: the paper's bars beside the model's, and our own formats up to 10,000 workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.perf.figure5.cells import CLUSTERS, FITTED_UP_TO, FLOAT, GPUS, NETWORKS, TERNARY
from thinwire.perf.figure5.judged import Judged, Table
from thinwire.perf.figure5.ours import Curve
from thinwire.perf.forecast import DENSE
from thinwire.perf.palette import colours
from thinwire.perf.picture import bare, new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# float pale, ternary strong, a hue for each network
BARS = {
    ("alexnet", FLOAT): "#a9cfe5",
    ("alexnet", TERNARY): "#0072b2",
    ("googlenet", FLOAT): "#a3d9c8",
    ("googlenet", TERNARY): "#009e73",
    ("vgg-a", FLOAT): "#f2c4a0",
    ("vgg-a", TERNARY): "#d55e00",
}


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


def write_ours(curves: Sequence[Curve], path: Path) -> None:
    """Speed against dense of every codec, a panel for each cluster and network."""
    figure = new_figure(14, 8)
    grid = figure.subplots(2, 3, sharex=True)
    palette = colours(list(dict.fromkeys(curve.codec for curve in curves)))
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


def _speeds(axes: Axes, curves: Sequence[Curve], palette: dict[str, str]) -> None:
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

"""The picture of a sweep: throughput, and speed against dense, over nodes or links; a PNG by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.errors import LabError
from thinwire.perf.palette import colours
from thinwire.perf.sweep import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Mapping[Any, Sequence[Row]]


def new_figure(width: float, height: float) -> Figure:
    """An empty figure that needs no display."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabError("pictures are drawn by matplotlib: run pip install matplotlib") from error
    figure = Figure(figsize=(width, height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror})") from error


def bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#eef0f3")
    axes.set_axisbelow(True)


def write_sweep(points: Points, x_name: str, title: str, path: Path) -> None:
    """Two plots beside each other; the codecs' names are below both."""
    figure = new_figure(12, 5)
    by_throughput, by_speed = figure.subplots(1, 2)
    _lines(by_throughput, points, x_name, "examples a second", throughput)
    _lines(by_speed, points, x_name, "times as fast as dense", speed)
    by_speed.axhline(1, color="#9ca3af", linewidth=1)
    figure.legend(*by_speed.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title)
    save(figure, path)


def throughput(row: Row) -> float | None:
    return None if row.forecast.refusal else row.forecast.examples_per_s


def speed(row: Row) -> float | None:
    return None if row.forecast.refusal else row.speedup


def series(points: Points, value: Any) -> dict[str, list[float | None]]:
    """What is drawn of each codec, point by point; None where it cannot serve."""
    codecs = [row.forecast.codec for row in next(iter(points.values()))]
    return {codec: [value(rows[k]) for rows in points.values()] for k, codec in enumerate(codecs)}


def _lines(axes: Axes, points: Points, x_name: str, y_name: str, value: Any) -> None:
    drawn = series(points, value)
    palette = colours(list(drawn))
    numbers = all(isinstance(point, int) for point in points)
    places = list(points) if numbers else list(range(len(points)))
    for codec, values in drawn.items():
        gaps = [float("nan") if value is None else value for value in values]
        axes.plot(places, gaps, ".-", color=palette[codec], label=codec)
    if numbers:
        axes.set_xscale("log", base=2)
        axes.set_xticks(places, _labels(places), rotation=45)
        axes.minorticks_off()
    else:
        axes.set_xticks(places, list(points))
    axes.set(xlabel=x_name, ylabel=y_name)
    readable_log(axes)
    bare(axes)


def _labels(places: Sequence[int]) -> list[str]:
    """No label where the next point is so close that both would run into each other."""
    following = [*places[1:], math.inf]
    return [f"{at:,}" if after >= 1.6 * at else "" for at, after in zip(places, following, strict=True)]


def readable_log(axes: Axes) -> None:
    """A logarithmic axis with plain numbers: 0.5, 1, 2, 5, 10, ..."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())

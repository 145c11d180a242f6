"""A sweep of forecasts over nodes or links, as a PNG and as a page that needs nothing but itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.cli.forecast import Curves
from thinwire.perf.forecast import DENSE
from thinwire.perf.sweep import Cells, Row, swept
from thinwire_lab.report import page as html
from thinwire_lab.report.drawing import FAINT, bare, colours, inline_svg, new_figure, readable_log, save
from thinwire_lab.report.record import open_folder, write_text

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Points = Mapping[Any, Sequence[Row]]


def write_curves(folder: Path, stem: str, curves: Curves) -> None:
    """A picture and a page of what `thinwire plan --sweep` found."""
    write_sweep(curves.points, curves.x_name, curves.title, folder / f"{stem}.png")
    page = folder / f"{stem}.html"
    write_page(
        page, curves.heading, curves.words, curves.headline, curves.points, curves.x_name, curves.sources
    )


def write_sweep(points: Points, x_name: str, title: str, path: Path) -> None:
    """The curves as a PNG."""
    save(_curves(points, x_name, title), path)


def write_page(
    path: Path,
    title: str,
    words: Sequence[str],
    head: Cells,
    points: Points,
    x_name: str,
    sources: Sequence[str],
) -> None:
    """The headline, then the sweep as curves and as a table, then where the inputs come from."""
    parts = [f"<h1>{escape(title)}</h1>", *(html.paragraph(word) for word in words)]
    parts += [html.table(*head), html.heading(f"Over {x_name}"), inline_svg(_curves(points, x_name, ""))]
    parts += [html.table(*swept(x_name, points)), html.heading("Where the inputs come from")]
    parts += [html.paragraph(source, quiet=True) for source in sources]
    open_folder(path.parent)
    write_text(path, html.page(title, parts))


def _curves(points: Points, x_name: str, title: str) -> Figure:
    """Throughput beside speed against dense; the codecs' names are below both."""
    figure = new_figure(12, 5)
    by_throughput, by_speed = figure.subplots(1, 2)
    _lines(by_throughput, points, x_name, "examples a second", throughput)
    _lines(by_speed, points, x_name, "times as fast as dense", speed)
    by_speed.axhline(1, color=FAINT, linewidth=1)
    figure.legend(*by_speed.get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(title)
    return figure


def throughput(row: Row) -> float:
    """Examples a second; NaN, a gap in the curve, where the codec cannot serve."""
    return math.nan if row.forecast.refusal else row.forecast.examples_per_s


def speed(row: Row) -> float:
    """Times as fast as dense; NaN where the codec cannot serve."""
    return math.nan if row.forecast.refusal else row.speedup


def _lines(axes: Axes, points: Points, x_name: str, y_name: str, value: Callable[[Row], float]) -> None:
    codecs = [row.forecast.codec for row in next(iter(points.values()))]
    palette = colours([DENSE, *codecs])
    numbers = all(isinstance(point, int) for point in points)
    places = list(points) if numbers else list(range(len(points)))
    for k, codec in enumerate(codecs):
        values = [value(rows[k]) for rows in points.values()]
        axes.plot(places, values, ".-", color=palette[codec], label=codec)
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

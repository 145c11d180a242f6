"""The page of a plan: tables and curves in one HTML file that needs nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.errors import LabError
from thinwire.perf.palette import colours
from thinwire.perf.picture import Points, series, speed, throughput
from thinwire.perf.tables import Cells, swept
from thinwire_lab.report import page as html

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def write_page(
    path: Path,
    title: str,
    words: Sequence[str],
    head: Cells,
    points: Points,
    x_name: str,
    sources: Sequence[str],
) -> None:
    """The headline, then the sweep as curves and as a table, then where inputs come from."""
    parts = [f"<h1>{escape(title)}</h1>", *(html.paragraph(word) for word in words)]
    parts += [html.table(*head), html.heading(f"Over {x_name}")]
    parts += [html.figure_html(_curves(points, x_name, "examples a second", throughput))]
    parts += [html.figure_html(_curves(points, x_name, "times as fast as dense", speed))]
    parts += [html.table(*swept(x_name, points)), html.heading("Where the inputs come from")]
    parts += [html.paragraph(source, quiet=True) for source in sources]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(html.page(title, parts))
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror})") from error


def _curves(points: Points, x_name: str, y_name: str, value: Any) -> Figure:
    from plotly import graph_objects

    drawn = series(points, value)
    palette = colours(list(drawn))
    places = [f"{point:,}" if isinstance(point, int) else str(point) for point in points]
    figure = graph_objects.Figure()
    for codec, values in drawn.items():
        figure.add_scatter(
            x=places,
            y=values,
            name=codec,
            mode="lines+markers",
            line={"color": palette[codec], "width": 2},
            hovertemplate=f"{codec}<br>%{{x}}: %{{y:.4g}}<extra></extra>",
        )
    figure.update_layout(
        template="plotly_white",
        height=420,
        margin={"l": 10, "r": 10, "t": 60, "b": 10},
        font={"family": FONT, "size": 14, "color": "#374151"},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(title_text=x_name, type="category", automargin=True, gridcolor="#eef0f3")
    figure.update_yaxes(title_text=y_name, type="log", automargin=True, gridcolor="#eef0f3", dtick=1)
    return figure

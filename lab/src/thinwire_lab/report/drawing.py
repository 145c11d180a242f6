"""Drawing: one palette, matplotlib figures as PNG or inline SVG, and a small SVG sheet for READMEs."""

from __future__ import annotations

import colorsys
import io
import re
from collections.abc import Iterable
from html import escape
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import LabError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# After Okabe and Ito, whose colours colour-blind readers tell apart; the first codec, the baseline, is grey.
FIRST = ("#838c9a", "#2b83c6", "#e0682a", "#12a27a", "#c96ba0", "#d99700", "#8a63d2", "#4fb7d6", "#8a8f1f")
STAGES = {
    "compute": "#8b95a5",
    "wait": "#d14b57",
    "agree": "#8a63d2",
    "encode": "#2b83c6",
    "travel": "#d99700",
    "merge": "#c96ba0",
    "decode": "#12a27a",
}
GOLDEN = 0.618034  # part of the circle of hues: neighbours lie far from each other
GRID, FAINT, DARK = "#eef0f3", "#9ca3af", "#374151"  # grid lines, lines to compare with, the line of equality
STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2937; }
.quiet { font-size: 12.5px; fill: #5b6472; } .head { font-weight: 600; } .end { text-anchor: end; }
.paper { fill: #ffffff; } .line { stroke: #d9dde3; }
@media (prefers-color-scheme: dark) { text { fill: #e3e7ed; } .quiet { fill: #9aa4b2; }
  .paper { fill: #0d1117; } .line { stroke: #323a46; } }
"""


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each codec, in their order; no two are alike, however many there are."""
    distinct = list(dict.fromkeys(names))
    more = (_hue(k * GOLDEN % 1.0, 0.42 + 0.2 * (k % 2)) for k in count(1))
    return dict(zip(distinct, [*FIRST, *islice(more, max(0, len(distinct) - len(FIRST)))], strict=False))


def _hue(hue: float, light: float) -> str:
    red, green, blue = colorsys.hls_to_rgb(hue, light, 0.7)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"


def new_figure(width: float, height: float, dpi: int = 110) -> Figure:
    """An empty figure that needs no display; its size is in inches."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabError("pictures are drawn by matplotlib: run pip install matplotlib") from error
    figure = Figure(figsize=(width, height), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Writes the figure as a PNG."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path)
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): free some space") from error


def inline_svg(figure: Figure) -> str:
    """The figure as an SVG element for a page; its text stays text."""
    from matplotlib import rc_context

    written = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "thinwire"}):
        figure.savefig(written, format="svg", metadata={"Date": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", written.getvalue(), flags=re.DOTALL)
    return re.sub(r' xmlns(:\w+)?="[^"]*"', "", text[text.index("<svg") :])  # HTML needs no namespaces


def bare(axes: Axes) -> None:
    """Only the left and the lower border, and a faint grid."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color=GRID)
    axes.set_axisbelow(True)


def readable_log(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers: 0.5, 1, 2, 5, 10, ..."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_yscale("log")
    low, high = axes.get_ylim()
    steps = (1.0, 2.0, 5.0) if high / low < 1000 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=steps))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def sheet(width: int, height: int, spoken: str, parts: Iterable[str]) -> str:
    """The whole picture; `spoken` says the same in words, for those who cannot see it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'role="img" aria-label="{escape(spoken)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """`kind`: classes of the style above."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}"{named}>{escape(words)}</text>'


def bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="17" rx="3" fill="{colour}"/>'


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}"/>'


def shortened(name: str, letters: int) -> str:
    """
    >>> shortened("gradiveq:8,slice=row", 12)
    'gradiveq:8,…'
    """
    return name if len(name) <= letters else f"{name[: letters - 1]}…"

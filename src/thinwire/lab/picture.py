"""The picture: a record's main plots as one PNG, for a README or a talk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import LabError
from thinwire.lab.comparison import compare
from thinwire.lab.plots import axis_of, colours, evaluations
from thinwire.lab.record import Record
from thinwire.lab.tables import byte_count

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def write_picture(record: Record, path: Path) -> None:
    """Score against steps, score against time, bytes per step: three plots in a row."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabError('pictures are drawn by matplotlib: run pip install "thinwire[lab]"') from error
    figure = Figure(figsize=(12, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    by_steps, by_time, by_bytes = figure.subplots(1, 3)
    _curves(record, by_steps, "step", "steps")
    _curves(record, by_time, "seconds", "seconds of training")
    _bytes(record, by_bytes)
    figure.suptitle(record.origin.title)
    try:
        figure.savefig(path)
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): free some space") from error


def _curves(record: Record, axes: Axes, x: str, x_name: str) -> None:
    name, factor = axis_of(record, "score")
    palette = colours(record)
    for outcome in record.outcomes:
        rows = evaluations(record, outcome)
        label = outcome.asked if outcome.asked not in axes.get_legend_handles_labels()[1] else None
        values = [factor * row["score"] for row in rows]
        axes.plot([row[x] for row in rows], values, ".-", color=palette[outcome.asked], label=label)
    axes.set(xlabel=x_name, ylabel=name, xlim=(0, None))
    axes.legend(frameon=False)
    _bare(axes)


def _bytes(record: Record, axes: Axes) -> None:
    lines = compare(record.outcomes)
    palette = colours(record)
    names = [line.codec for line in lines]
    sizes = [line.bytes_per_step / 1e3 for line in lines]
    bars = axes.barh(names, sizes, height=0.5, color=[palette[name] for name in names])
    axes.bar_label(
        bars, [f"{byte_count(line.bytes_per_step)}, {line.ratio:.1f}x" for line in lines], padding=4
    )
    axes.invert_yaxis()
    axes.set(xlabel="kB sent per step and worker")
    axes.margins(x=0.4, y=0.2)
    _bare(axes)


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#eef0f3")
    axes.set_axisbelow(True)

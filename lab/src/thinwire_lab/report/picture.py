"""The picture: a record's main plots as one PNG, for a README or a talk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.errors import LabError
from thinwire_lab.report.colours import colours
from thinwire_lab.report.comparison import compare
from thinwire_lab.report.outcome import Outcome, Row
from thinwire_lab.report.page_data import axis_of
from thinwire_lab.report.record import Record
from thinwire_lab.report.strength import controlled, strength_axis, strength_of, strength_rows
from thinwire_lab.report.tables import byte_count
from thinwire_lab.report.title import title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LONG_NAME = 24  # characters; longer names have no room beside the bars


def write_picture(record: Record, path: Path) -> None:
    """Score against steps, score against time, bytes per step: three plots in a row.

    If a control was at work, the codecs' strength takes the place of the score against time.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabError("pictures are drawn by matplotlib: run pip install matplotlib") from error
    names = _palette(record)
    long = max(map(len, names)) > LONG_NAME
    figure = Figure(figsize=(12, 3.6 + 0.25 * len(names) * long), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    by_steps, middle, by_bytes = figure.subplots(1, 3)
    _curves(record, by_steps, "step", "steps")
    if controlled(record):
        _strengths(record, middle)
    else:
        _curves(record, middle, "seconds", "seconds of training")
    _bytes(record, by_bytes)
    if long:  # they go below the plots, once
        figure.legend(*by_steps.get_legend_handles_labels(), loc="outside lower left", frameon=False)
        by_bytes.set_yticks([])
    for axes in () if long else figure.axes[: 1 if controlled(record) else 2]:
        axes.legend(frameon=False)
    figure.suptitle(title_of(record), fontsize="medium" if long else None)
    try:
        figure.savefig(path)
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): free some space") from error


def _curves(record: Record, axes: Axes, x: str, x_name: str) -> None:
    name, factor = axis_of(record.outcomes[0].metric)
    palette = _palette(record)
    for outcome in record.outcomes:
        rows = _evaluations(record, outcome)
        label = outcome.asked if outcome.asked not in axes.get_legend_handles_labels()[1] else None
        values = [factor * row["score"] for row in rows]
        axes.plot([row[x] for row in rows], values, ".-", color=palette[outcome.asked], label=label)
    axes.set(xlabel=x_name, ylabel=name, xlim=(0, None))
    _bare(axes)


def _strengths(record: Record, axes: Axes) -> None:
    palette = _palette(record)
    for outcome in record.outcomes:
        rows = strength_rows(record, outcome)
        values = [row[strength_of(record)] for row in rows]
        axes.step([row["step"] for row in rows], values, where="post", color=palette[outcome.asked])
    axes.set(xlabel="steps", ylabel=strength_axis(record), xlim=(0, None), ylim=(-0.03, 1.05))
    _bare(axes)


def _bytes(record: Record, axes: Axes) -> None:
    lines = compare(record.outcomes)
    palette = _palette(record)
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


def _palette(record: Record) -> dict[str, str]:
    return colours(outcome.asked for outcome in record.outcomes)


def _evaluations(record: Record, outcome: Outcome) -> list[Row]:
    return [row for row in record.rows[outcome.label] if row["row"] == "evaluation"]


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#eef0f3")
    axes.set_axisbelow(True)

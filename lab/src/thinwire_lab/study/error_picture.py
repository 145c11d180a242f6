"""The picture of the error study: its figures as one PNG (matplotlib)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.errors import LabError
from thinwire_lab.study.correlation import BREAK_EVEN, WHITE_IN_PLACE
from thinwire_lab.study.errors import Finding
from thinwire_lab.study.figures import (
    IN_PLACE_AXIS,
    LAG1_AXIS,
    LOOKS,
    SUBJECT_COLOURS,
    curves,
    layer_points,
    moments_of,
    subjects_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MARKERS = {"circle": "o", "square": "s", "diamond": "D", "star": "*"}
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
RATIO_TICKS = (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)


def write_error_picture(findings: Sequence[Finding], path: Path) -> None:
    """Error against bits for every subject and moment, and below it where FFT beats top-k."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise LabError("pictures are drawn by matplotlib: run pip install matplotlib") from error
    subjects, moments = subjects_of(findings), moments_of(findings)
    height = 2.7 * len(subjects) + 4.6
    figure = Figure(figsize=(4.1 * len(moments), height), dpi=110, layout="constrained")
    FigureCanvasAgg(figure)
    halves: Any = figure.subfigures(2, 1, height_ratios=[height - 4.0, 4.0])
    upper, lower = halves
    grid = upper.subplots(len(subjects), len(moments), sharex=True, sharey=True, squeeze=False)
    for finding in findings:
        _curves(finding, grid[subjects.index(finding.subject)][moments.index(finding.moment)])
    for axes in grid[-1]:
        axes.set_xlabel("bits per element")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    handles, labels = _legend(grid.flat)
    upper.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)
    _layers(findings, *lower.subplots(1, 2, sharey=True))
    try:
        figure.savefig(path)
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): free some space") from error


def _curves(finding: Finding, axes: Axes) -> None:
    for curve in curves(finding):
        look = LOOKS[curve.method]
        axes.plot(
            curve.bits,
            curve.errors,
            color=look.colour,
            linestyle=":" if look.dashed else "-",
            marker=MARKERS[look.marker],
            markersize=9 if look.marker == "star" else 4.5,
            label=curve.method,
        )
    axes.set_title(f"{finding.subject}, {finding.moment}", fontsize=10, loc="left")
    _logarithmic(axes, TICKS)
    _bare(axes)


def _legend(all_axes: Sequence[Axes]) -> tuple[list[object], list[str]]:
    """Every method once, wherever it was drawn."""
    found: dict[str, object] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _layers(findings: Sequence[Finding], left: Axes, right: Axes) -> None:
    for index, subject in enumerate(subjects_of(findings)):
        points = layer_points(findings, subject)
        ratios, colour = [p.ratio for p in points], SUBJECT_COLOURS[index % len(SUBJECT_COLOURS)]
        left.scatter([p.lag1 for p in points], ratios, s=22, color=colour, alpha=0.7, label=subject)
        right.scatter([p.in_place for p in points], ratios, s=22, color=colour, alpha=0.7)
    left.set_title(
        "Every tensor at every moment, 2 bits: FFT errs less below the line", fontsize=10, loc="left"
    )
    left.set(xlabel=LAG1_AXIS, ylabel="error of fft / error of topk")
    right.set(xlabel=IN_PLACE_AXIS)
    left.axvline(BREAK_EVEN, color="#9ca3af", linewidth=1, linestyle="--")
    right.axvline(WHITE_IN_PLACE, color="#9ca3af", linewidth=1, linestyle="--")
    left.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.axhline(1.0, color="#374151", linewidth=1)
        _logarithmic(axes, RATIO_TICKS)
        _bare(axes)


def _logarithmic(axes: Axes, ticks: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def _bare(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(color="#eef0f3")
    axes.set_axisbelow(True)

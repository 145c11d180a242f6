"""Figures of the error study: error against bits, and where FFT beats top-k (matplotlib)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire_lab.report.drawing import DARK, FAINT, FIRST, bare, new_figure, save
from thinwire_lab.study.errors import BREAK_EVEN, WHITE_IN_PLACE, GradientErrors
from thinwire_lab.study.findings import FFT

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
RATIO_TICKS = (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)
LAG1_AXIS = "correlation of neighbours (dashed: AR(1) breaks even)"
IN_PLACE_AXIS = "energy in the 15 % largest elements (dashed: white noise)"
RIVAL = "topk"  # of fft in the plot of single tensors: the same coder behind the same selection
SUBJECT_COLOURS = FIRST[1:]


@dataclass(frozen=True)
class Look:
    """How a method is drawn: related methods share a colour and differ in the dash."""

    colour: str
    dashed: bool = False
    marker: str = "o"


LOOKS = {
    "fft": Look(FIRST[1]),
    "fft whole": Look(FIRST[1], dashed=True, marker="s"),
    "dct": Look(FIRST[7], marker="D"),
    "topk": Look(FIRST[2]),
    "topk fp32": Look(FIRST[2], dashed=True, marker="s"),
    "terngrad": Look(FIRST[0], marker="*"),
    "qsgd": Look(FIRST[3]),
    "qsgd l2": Look(FIRST[3], dashed=True, marker="s"),
    "gradiveq": Look(FIRST[4]),
    "gradiveq qsgd:8": Look(FIRST[4], dashed=True, marker="s"),
}


@dataclass(frozen=True)
class ErrorCurve:
    """The errors of one method on one snapshot, against the bits it really sends."""

    method: str
    bits: list[float]
    errors: list[float]


@dataclass(frozen=True)
class LayerPoint:
    """One tensor at one moment: FFT's error over top-k's at 2 bits, and two reasons for it."""

    lag1: float
    in_place: float
    ratio: float
    name: str


def curves(finding: GradientErrors) -> list[ErrorCurve]:
    """One curve for each method; a codec that serves several targets is one point."""
    found = []
    for method in dict.fromkeys(error.method for error in finding.errors):
        points = dict(sorted((e.bits, e.error) for e in finding.errors if e.method == method))
        found.append(ErrorCurve(method, list(points), list(points.values())))
    return found


def subjects_of(findings: Sequence[GradientErrors]) -> list[str]:
    """In the order in which they were studied."""
    return list(dict.fromkeys(finding.subject for finding in findings))


def moments_of(findings: Sequence[GradientErrors]) -> list[str]:
    """In the order of training."""
    return list(dict.fromkeys(finding.moment for finding in findings))


def layer_points(findings: Sequence[GradientErrors], subject: str) -> list[LayerPoint]:
    """A point for every tensor of a subject at every moment."""
    points = []
    for finding in findings:
        for layer in finding.layers if finding.subject == subject else ():
            ours = [layer.errors[method] for method in FFT if method in layer.errors]
            if ours and layer.errors.get(RIVAL, 0.0) > 0:
                ratio = min(ours) / layer.errors[RIVAL]
                name = f"{subject}, {finding.moment}: {layer.name}"
                points.append(LayerPoint(layer.correlation.lag1, layer.correlation.in_place, ratio, name))
    return points


def error_figure(findings: Sequence[GradientErrors]) -> Figure:
    """Error against bits: a row for each subject, a column for each moment."""
    subjects, moments = subjects_of(findings), moments_of(findings)
    figure = new_figure(4.1 * len(moments), 2.7 * len(subjects) + 0.6)
    _error_plots(findings, figure)
    return figure


def layer_figure(findings: Sequence[GradientErrors]) -> Figure:
    """FFT's error over top-k's, a point for each tensor and moment, against two reasons for it."""
    figure = new_figure(12, 4)
    _layer_plots(findings, figure)
    return figure


def write_error_picture(findings: Sequence[GradientErrors], path: Path) -> None:
    """Both figures, one above the other, as one PNG."""
    height = 2.7 * len(subjects_of(findings)) + 4.6
    figure = new_figure(4.1 * len(moments_of(findings)), height)
    halves: Any = figure.subfigures(2, 1, height_ratios=[height - 4.0, 4.0])
    _error_plots(findings, halves[0])
    _layer_plots(findings, halves[1])
    save(figure, path)


def _error_plots(findings: Sequence[GradientErrors], figure: Figure | SubFigure) -> None:
    subjects, moments = subjects_of(findings), moments_of(findings)
    grid = figure.subplots(len(subjects), len(moments), sharex=True, sharey=True, squeeze=False)
    for finding in findings:
        _curves(finding, grid[subjects.index(finding.subject)][moments.index(finding.moment)])
    for axes in grid[-1]:
        axes.set_xlabel("bits per element")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative error")
    handles, labels = _legend(figure.axes)
    figure.legend(handles, labels, loc="outside upper center", ncols=5, frameon=False)


def _curves(finding: GradientErrors, axes: Axes) -> None:
    for curve in curves(finding):
        look = LOOKS[curve.method]
        axes.plot(
            curve.bits,
            curve.errors,
            color=look.colour,
            linestyle=":" if look.dashed else "-",
            marker=look.marker,
            markersize=9 if look.marker == "*" else 4.5,
            label=curve.method,
        )
    axes.set_title(f"{finding.subject}, {finding.moment}", fontsize=10, loc="left")
    _logarithmic(axes, TICKS)
    bare(axes)


def _legend(all_axes: Iterable[Axes]) -> tuple[list[Artist], list[str]]:
    """Every method once, wherever it was drawn."""
    found: dict[str, Artist] = {}
    for axes in all_axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    return list(found.values()), list(found)


def _layer_plots(findings: Sequence[GradientErrors], figure: Figure | SubFigure) -> None:
    left, right = figure.subplots(1, 2, sharey=True)
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
    left.axvline(BREAK_EVEN, color=FAINT, linewidth=1, linestyle="--")
    right.axvline(WHITE_IN_PLACE, color=FAINT, linewidth=1, linestyle="--")
    left.legend(frameon=False, fontsize=9)
    for axes in (left, right):
        axes.axhline(1.0, color=DARK, linewidth=1)
        _logarithmic(axes, RATIO_TICKS)
        bare(axes)


def _logarithmic(axes: Axes, ticks: Sequence[float]) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    axes.set_yscale("log")
    axes.yaxis.set_major_locator(FixedLocator(list(ticks)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))

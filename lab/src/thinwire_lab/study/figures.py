"""Figures of the error study for the HTML report (plotly)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.errors import LabError
from thinwire_lab.report.page import FONT
from thinwire_lab.study.errors import BREAK_EVEN, WHITE_IN_PLACE, GradientErrors
from thinwire_lab.study.findings import FFT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from plotly.graph_objects import Figure


LAG1_AXIS = "correlation of neighbours (dashed: AR(1) breaks even)"
IN_PLACE_AXIS = "energy in the 15 % largest elements (dashed: white noise)"
RIVAL = "topk"  # of fft in the plot of single tensors: the same coder behind the same selection


@dataclass(frozen=True)
class Look:
    """How a method is drawn: related methods share a colour and differ in the dash."""

    colour: str
    dashed: bool = False
    marker: str = "circle"


# Okabe and Ito's colours, told apart by colour-blind readers.
LOOKS = {
    "fft": Look("#0072b2"),
    "fft whole": Look("#0072b2", dashed=True, marker="square"),
    "dct": Look("#56b4e9", marker="diamond"),
    "topk": Look("#d55e00"),
    "topk fp32": Look("#d55e00", dashed=True, marker="square"),
    "terngrad": Look("#6b7280", marker="star"),
    "qsgd": Look("#009e73"),
    "qsgd l2": Look("#009e73", dashed=True, marker="square"),
    "gradiveq": Look("#cc79a7"),
    "gradiveq qsgd:8": Look("#cc79a7", dashed=True, marker="square"),
}
SUBJECT_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")


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
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    subjects, moments = subjects_of(findings), moments_of(findings)
    figure = make_subplots(
        len(subjects),
        len(moments),
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.02,
        vertical_spacing=0.16 / len(subjects),
        subplot_titles=[f"{subject}, {moment}" for subject in subjects for moment in moments],
    )
    shown: set[str] = set()
    for finding in findings:
        row, column = subjects.index(finding.subject) + 1, moments.index(finding.moment) + 1
        for curve in curves(finding):
            look = LOOKS[curve.method]
            trace = graph_objects.Scatter(
                x=curve.bits,
                y=curve.errors,
                name=curve.method,
                legendgroup=curve.method,
                showlegend=curve.method not in shown,
                mode="lines+markers",
                line={"color": look.colour, "width": 2, "dash": "dot" if look.dashed else "solid"},
                marker={"size": 7, "symbol": look.marker},
                hovertemplate=f"{curve.method}<br>%{{x:.2f}} bit: %{{y:.3f}}<extra></extra>",
            )
            figure.add_trace(trace, row=row, col=column)
            shown.add(curve.method)
    figure.update_xaxes(title_text="bits per element", row=len(subjects))
    figure.update_yaxes(type="log", dtick="D2")
    figure.update_yaxes(title_text="relative error", col=1)
    return _styled(figure, 150 + 270 * len(subjects))


def layer_figure(findings: Sequence[GradientErrors]) -> Figure:
    """FFT's error over top-k's, a point for each tensor and moment, against two reasons for it."""
    from plotly import graph_objects
    from plotly.subplots import make_subplots

    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03)
    for index, subject in enumerate(subjects_of(findings)):
        points = layer_points(findings, subject)
        for column, x in ((1, [p.lag1 for p in points]), (2, [p.in_place for p in points])):
            trace = graph_objects.Scatter(
                x=x,
                y=[p.ratio for p in points],
                text=[p.name for p in points],
                name=subject,
                legendgroup=subject,
                showlegend=column == 1,
                mode="markers",
                marker={"size": 8, "color": SUBJECT_COLOURS[index % len(SUBJECT_COLOURS)], "opacity": 0.75},
                hovertemplate="%{text}<br>%{x:.2f}, ratio %{y:.2f}<extra></extra>",
            )
            figure.add_trace(trace, row=1, col=column)
    figure.add_hline(1.0, line={"color": "#374151", "width": 1})
    figure.add_vline(BREAK_EVEN, line={"color": "#9ca3af", "width": 1, "dash": "dash"}, row=1, col=1)
    figure.add_vline(WHITE_IN_PLACE, line={"color": "#9ca3af", "width": 1, "dash": "dash"}, row=1, col=2)
    figure.update_xaxes(title_text=LAG1_AXIS, row=1, col=1)
    figure.update_xaxes(title_text=IN_PLACE_AXIS, row=1, col=2)
    figure.update_yaxes(type="log", dtick="D2")
    figure.update_yaxes(title_text="error of fft / error of topk, 2 bit", row=1, col=1)
    return _styled(figure, 460)


def _styled(figure: Figure, height: int) -> Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 10, "r": 10, "t": 90, "b": 10},
        font={"family": FONT, "size": 13, "color": "#374151"},
        legend={"orientation": "h", "x": 0, "y": 0.995, "yanchor": "top", "yref": "container"},
    )
    figure.update_xaxes(automargin=True, gridcolor="#eef0f3", zerolinecolor="#d1d5db")
    figure.update_yaxes(automargin=True, gridcolor="#eef0f3", zerolinecolor="#d1d5db")
    return figure


MARKERS = {"circle": "o", "square": "s", "diamond": "D", "star": "*"}
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
RATIO_TICKS = (0.25, 0.5, 0.7, 1, 1.5, 2, 3, 5, 10)


def write_error_picture(findings: Sequence[GradientErrors], path: Path) -> None:
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


def _curves(finding: GradientErrors, axes: Axes) -> None:
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


def _layers(findings: Sequence[GradientErrors], left: Axes, right: Axes) -> None:
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

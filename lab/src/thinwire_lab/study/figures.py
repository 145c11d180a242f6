"""Figures of the error study for the HTML report (plotly)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thinwire_lab.report.page import FONT
from thinwire_lab.study.correlation import BREAK_EVEN, WHITE_IN_PLACE
from thinwire_lab.study.errors import Finding
from thinwire_lab.study.verdict import FFT

if TYPE_CHECKING:
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
class Curve:
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


def curves(finding: Finding) -> list[Curve]:
    """One curve for each method; a codec that serves several targets is one point."""
    found = []
    for method in dict.fromkeys(error.method for error in finding.errors):
        points = dict(sorted((e.bits, e.error) for e in finding.errors if e.method == method))
        found.append(Curve(method, list(points), list(points.values())))
    return found


def subjects_of(findings: Sequence[Finding]) -> list[str]:
    """In the order in which they were studied."""
    return list(dict.fromkeys(finding.subject for finding in findings))


def moments_of(findings: Sequence[Finding]) -> list[str]:
    """In the order of training."""
    return list(dict.fromkeys(finding.moment for finding in findings))


def layer_points(findings: Sequence[Finding], subject: str) -> list[LayerPoint]:
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


def error_figure(findings: Sequence[Finding]) -> Figure:
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


def layer_figure(findings: Sequence[Finding]) -> Figure:
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

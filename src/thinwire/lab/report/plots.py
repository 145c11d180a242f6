"""Plots of a record for the HTML report, as plotly figures."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thinwire.lab.data.task import ACCURACY
from thinwire.lab.report.comparison import compare
from thinwire.lab.report.operation_times import OPERATIONS, exchange_runs, operation_ms
from thinwire.lab.report.outcome import Outcome, Row
from thinwire.lab.report.record import Record
from thinwire.lab.report.strength import strength_axis, strength_of, strength_rows
from thinwire.lab.report.tables import byte_count, fewer, pace

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

# Okabe and Ito's colours, told apart by colour-blind readers; the first codec, the baseline, is grey.
COLOURS = ("#6b7280", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
OPERATION_COLOURS = ("#56b4e9", "#0072b2", "#9ca3af", "#e69f00", "#009e73")
TEXT_SHARE = 0.04  # of the longest bar: a shorter piece has no room for its number
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif"


def colours(record: Record) -> dict[str, str]:
    """The colour of each codec, the same in all plots."""
    codecs = dict.fromkeys(outcome.asked for outcome in record.outcomes)
    return {codec: COLOURS[k % len(COLOURS)] for k, codec in enumerate(codecs)}


def in_lines(codec: str, end: str = "<br>") -> str:
    """A codec's name with every option behind "@" in a line of its own, where there is little room."""
    name, at, options = codec.partition(" @ ")
    return end.join([name, *options.split()]) if at else codec


def curves(record: Record, value: str) -> Figure:
    """A value against steps and, beside it, against the seconds spent training."""
    from plotly.subplots import make_subplots

    name, factor = axis_of(record, value)
    figure = make_subplots(1, 2, shared_yaxes=True, horizontal_spacing=0.03)
    for column, x, x_name in ((1, "step", "steps"), (2, "seconds", "seconds of training")):
        for outcome in record.outcomes:
            points = evaluations(record, outcome)
            figure.add_trace(
                _curve(
                    record,
                    outcome,
                    [row[x] for row in points],
                    [factor * row[value] for row in points],
                    column,
                ),
                row=1,
                col=column,
            )
        figure.update_xaxes(title_text=x_name, rangemode="tozero", row=1, col=column)
    figure.update_yaxes(title_text=name, row=1, col=1)
    return _styled(figure, 340)


def _curve(record: Record, outcome: Outcome, x: list[float], y: list[float], column: int) -> object:
    from plotly import graph_objects

    first = next(other for other in record.outcomes if other.asked == outcome.asked)
    return graph_objects.Scatter(
        x=x,
        y=y,
        name=outcome.asked,
        legendgroup=outcome.asked,
        showlegend=column == 1 and outcome is first,
        mode="lines+markers",
        line={"color": colours(record)[outcome.asked], "width": 2},
        marker={"size": 5},
        hovertemplate=f"{outcome.label}<br>%{{x:.4g}}: %{{y:.4g}}<extra></extra>",
    )


def strengths(record: Record) -> Figure:
    """How strong codecs were, against steps: theta where they have one, else their strength."""
    from plotly import graph_objects

    figure = graph_objects.Figure()
    first = {outcome.asked: outcome for outcome in reversed(record.outcomes)}
    for outcome in record.outcomes:
        rows = strength_rows(record, outcome)
        if not rows:
            continue
        trace = graph_objects.Scatter(
            x=[row["step"] for row in rows],
            y=[row[strength_of(record)] for row in rows],
            name=outcome.asked,
            legendgroup=outcome.asked,
            showlegend=outcome is first[outcome.asked],
            mode="lines",
            line={"color": colours(record)[outcome.asked], "width": 2, "shape": "hv"},
            hovertemplate=f"{outcome.label}<br>step %{{x}}: %{{y:.4g}}<extra></extra>",
        )
        figure.add_trace(trace)
    figure.update_layout(showlegend=True)
    figure.update_xaxes(title_text="steps", rangemode="tozero")
    figure.update_yaxes(title_text=strength_axis(record), range=[-0.03, 1.05])
    return _styled(figure, 300)


def bars_of_bytes(record: Record) -> Figure:
    """Bytes that one worker sends per step, a bar for each codec."""
    lines = compare(record.outcomes)
    values = [line.bytes_per_step / 1e3 for line in lines]
    texts = [f"{byte_count(line.bytes_per_step)} ({fewer(line.ratio)})" for line in lines]
    texts[0] = byte_count(lines[0].bytes_per_step)
    return _bars(record, values, texts, "kB sent per step and worker")


def bars_of_time(record: Record) -> Figure:
    """Milliseconds per step, a bar for each codec."""
    lines = compare(record.outcomes)
    texts = [f"{line.step_ms.mean:.1f} ms ({pace(line.speedup)})" for line in lines]
    texts[0] = f"{lines[0].step_ms.mean:.1f} ms"
    return _bars(record, [line.step_ms.mean for line in lines], texts, "milliseconds per step")


def _bars(record: Record, values: list[float], texts: list[str], axis: str) -> Figure:
    from plotly import graph_objects

    palette = colours(record)
    bar = graph_objects.Bar(
        y=list(palette),
        x=values,
        text=texts,
        orientation="h",
        marker={"color": list(palette.values())},
        textposition="outside",
        hoverinfo="skip",
    )
    figure = graph_objects.Figure(bar)
    labels = [in_lines(codec) for codec in palette]
    figure.update_yaxes(
        autorange="reversed", tickvals=list(palette), ticktext=[f"{label}  " for label in labels]
    )
    figure.update_xaxes(title_text=axis, range=[0, 1.4 * max(values)])  # room for the text beside the bar
    return _styled(figure, 90 + max(46, *(20 * (1 + label.count("<br>")) for label in labels)) * len(values))


def bars_of_operations(record: Record) -> Figure | None:
    """Milliseconds of each part of the exchange per step; None if no run went through thinwire."""
    from plotly import graph_objects

    runs = exchange_runs(record)
    if not runs:
        return None
    longest = max(sum(operation_ms(outcome, operation) for operation in OPERATIONS) for outcome in runs)
    figure = graph_objects.Figure()
    for operation, colour in zip(OPERATIONS, OPERATION_COLOURS, strict=True):
        values = [operation_ms(outcome, operation) for outcome in runs]
        texts = [f"{value:.2g}" if value >= TEXT_SHARE * longest else "" for value in values]
        names = [in_lines(outcome.asked) for outcome in runs]
        figure.add_bar(
            y=names, x=values, name=operation, orientation="h", marker={"color": colour}, text=texts
        )
    figure.update_traces(textangle=0, textposition="inside", insidetextanchor="middle")
    figure.update_layout(barmode="stack", legend_traceorder="normal")
    figure.update_yaxes(autorange="reversed", ticksuffix="  ")
    figure.update_xaxes(title_text="milliseconds per step on worker 0's exchange thread", rangemode="tozero")
    return _styled(figure, 120 + 46 * len(runs))


def evaluations(record: Record, outcome: Outcome) -> list[Row]:
    """The evaluation rows of a run."""
    return [row for row in record.rows[outcome.label] if row["row"] == "evaluation"]


def axis_of(record: Record, value: str) -> tuple[str, float]:
    """The name of a value's axis and the factor to its unit."""
    if value == "loss":
        return "training loss", 1.0
    metric = record.outcomes[0].metric
    return ("test accuracy in %", 100.0) if metric == ACCURACY else (f"test {metric}", 1.0)


def _styled(figure: Figure, height: int) -> Figure:
    figure.update_layout(
        template="plotly_white",
        height=height,
        margin={"l": 10, "r": 10, "t": 30, "b": 10},
        font={"family": FONT, "size": 14, "color": "#374151"},
        legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
    )
    figure.update_xaxes(automargin=True, gridcolor="#eef0f3", zerolinecolor="#d1d5db")
    figure.update_yaxes(automargin=True, gridcolor="#eef0f3", zerolinecolor="#d1d5db")
    return figure

"""The data of a page: what its script draws of a record, as plain values for JSON."""

from __future__ import annotations

from typing import Any

from thinwire.texts import parse_rate
from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.costs import (
    RunCurve,
    codec_cost,
    level_axis,
    level_kind,
    level_rows,
    loss_curve,
    mean_curve,
    rate_of,
    scheduled,
    score_curve,
    stage_history,
)
from thinwire_lab.report.drawing import STAGES, colours
from thinwire_lab.report.record import Record, Row, RunOutcome

RATE = "1gbit"  # where the slider stands first, unless the runs had a link
LAYERS = 16  # the largest; tables have all
WIDE = 10.0  # times the least: what spans more is drawn on a logarithmic axis

Values = dict[str, Any]


def page_data(record: Record) -> Values:
    """Everything that is drawn; codecs are numbered in the order in which they were named."""
    firsts = first_runs(record)
    return {
        "rate": parse_rate(record.origin.recipe.get("rate") or RATE),
        "stages": STAGES,
        "wide": _is_wide([run.bytes_per_step for run in record.outcomes]),  # bytes on a logarithmic axis
        "codecs": _codecs(record, firsts),
        "score": _scores(record),
        "loss": _losses(record),
        "layers": _layers(firsts),
        "history": _history(record, firsts),
        "histograms": _histograms(record, firsts),
        "levels": _levels(record),
    }


def first_runs(record: Record) -> dict[str, RunOutcome]:
    """The first run of every codec."""
    firsts: dict[str, RunOutcome] = {}
    for outcome in record.outcomes:
        firsts.setdefault(outcome.asked, outcome)
    return firsts


def axis_of(metric: str) -> tuple[str, float]:
    """The name of the score's axis and the factor to its unit."""
    return ("test accuracy in %", 100.0) if metric == ACCURACY else (f"test {metric}", 1.0)


def _codecs(record: Record, firsts: dict[str, RunOutcome]) -> list[Values]:
    palette = colours(firsts)
    costs = {codec: codec_cost(record, codec) for codec in firsts}
    return [
        {
            "name": codec,
            "colour": palette[codec],
            "steps": run.steps,
            "bytes_per_step": costs[codec].num_bytes,
            "stages": costs[codec].stages,
        }
        for codec, run in firsts.items()
    ]


def _scores(record: Record) -> Values:
    name, factor = axis_of(record.outcomes[0].metric)
    rate = rate_of(record)
    curves = [(run, score_curve(run, record.rows[run.label], rate, factor)) for run in record.outcomes]
    return {"axis": name, "log": False, "cut": 0.25, "curves": _drawn(record, curves)}


def _losses(record: Record) -> Values:
    rate = rate_of(record)
    curves = [(run, loss_curve(run, record.rows[run.label], rate)) for run in record.outcomes]
    log = _is_wide([y for _, curve in curves for y in curve.y])
    return {"axis": "training loss", "log": log, "cut": 0.02, "curves": _drawn(record, curves)}


def _drawn(record: Record, curves: list[tuple[RunOutcome, RunCurve]]) -> list[Values]:
    """For every codec the mean over its seeds and, thin, each of them; a single one is its own mean."""
    drawn: list[Values] = []
    for number, codec in enumerate(first_runs(record)):
        own = [curve for run, curve in curves if run.asked == codec]
        mean = mean_curve(own)
        several = mean is not None and len(own) > 1
        drawn += [{"codec": number, "thin": several, **curve.to_dict()} for curve in own]
        drawn += [{"codec": number, "thin": False, **mean.to_dict()}] if several and mean is not None else []
    return drawn


def _is_wide(values: list[float]) -> bool:
    finite = [value for value in values if 0 < value < float("inf")]
    return bool(finite) and max(finite) > WIDE * min(finite)


def _layers(firsts: dict[str, RunOutcome]) -> list[Values]:
    """The largest layers that any codec changed, each with what every codec did to it."""
    found: dict[str, list[Values]] = {}
    sizes: dict[str, int] = {}
    for number, run in enumerate(firsts.values()):
        for layer in (run.report or {"layers": []})["layers"]:
            values = {"bytes": layer["bytes_per_step"], "error": layer["relative_error"]}
            found.setdefault(layer["name"], []).append({"codec": number, **values})
            sizes[layer["name"]] = layer["numel"]
    lossy = [name for name, of in found.items() if any(entry["error"] for entry in of)]
    largest = sorted(lossy or sizes, key=lambda name: -sizes[name])[:LAYERS]
    return [{"name": f"{name} ({sizes[name]:,})", "of": found[name]} for name in largest]


def _history(record: Record, firsts: dict[str, RunOutcome]) -> list[Values]:
    entries = [{"codec": k, **stage_history(record.rows[run.label])} for k, run in enumerate(firsts.values())]
    return [entry for entry in entries if len(entry["step"]) > 1]


def _histograms(record: Record, firsts: dict[str, RunOutcome]) -> list[Values]:
    entries = []
    for number, run in enumerate(firsts.values()):
        looks = [row for row in record.rows[run.label] if row["row"] == "histograms"]
        if looks:
            entries.append({"codec": number, "layers": _by_layer(looks)})
    return entries


def _by_layer(looks: list[Row]) -> list[Values]:
    layers: dict[str, list[Values]] = {}
    for row in looks:
        for entry in row["layers"]:
            values = {name: entry[name] for name in ("limit", "own", "mean")}
            layers.setdefault(entry["layer"], []).append({"step": row["step"], **values})
    largest = sorted(layers, key=lambda name: -sum(layers[name][0]["own"]))
    return [{"name": name, "looks": layers[name]} for name in largest]


def _levels(record: Record) -> Values | None:
    if not scheduled(record):
        return None
    numbers = {codec: number for number, codec in enumerate(first_runs(record))}
    curves = []
    for run in record.outcomes:
        rows, what = level_rows(record, run), level_kind(record)
        x, y = [row["step"] for row in rows], [row[what] for row in rows]
        curves.append({"codec": numbers[run.asked], "x": x, "y": y})
    return {"axis": level_axis(record), "curves": curves}

"""Costs in a record: stages of the exchange, cost of a step, compression levels, and curves over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from statistics import fmean
from typing import Any

import numpy as np

from thinwire.texts import parse_rate
from thinwire_lab.report.record import Record, Row, RunOutcome, start_of

STAGES = ("agree", "encode", "travel", "merge", "decode")  # of the exchange, on a thread of its own
PREFIX = "thinwire/seconds_per_step/"
CODING = ("encode", "merge", "decode")
EXCHANGE = ("agree", *CODING)  # as recorded at any link: agreeing is short messages, whose time is latency
POINTS = 150  # of a loss curve
WINDOWS = 25  # a loss is a mean over this part of the run, the steps before it
DIGITS = 5


def exchange_runs(record: Record) -> list[RunOutcome]:
    """The first run of every codec that went through thinwire."""
    first: dict[str, RunOutcome] = {}
    for outcome in record.outcomes:
        if outcome.report is not None:
            first.setdefault(outcome.asked, outcome)
    return list(first.values())


def operation_ms(outcome: RunOutcome, operation: str) -> float:
    """Milliseconds per step spent in an operation."""
    report = outcome.report or {}
    return float(1e3 * report["seconds"].get(operation, 0.0) / max(1, report["steps"]))


def stage_history(rows: list[Row]) -> dict[str, Any]:
    """The last step of each stretch and, by stage, seconds a step in it.

    "wait" is what of the exchange the backward pass did not hide; "compute" is the rest of the step.
    """
    found = [row for row in rows if row["row"] == "evaluation" and "waited_s" in row]
    totals: dict[str, list[float]] = {
        "compute": [row["seconds"] - row["waited_s"] for row in found],
        "wait": [row["waited_s"] for row in found],
    }
    first = start_of(rows)
    steps = [row["step"] - first for row in found]
    for stage in STAGES:
        if found and all(PREFIX + stage in row["scalars"] for row in found):
            totals[stage] = [
                step * row["scalars"][PREFIX + stage] for step, row in zip(steps, found, strict=True)
            ]
    stages = {stage: _by_stretch(steps, sums) for stage, sums in totals.items()}
    return {"step": [row["step"] for row in found], "stages": stages}


def _by_stretch(steps: list[int], sums: list[float]) -> list[float]:
    """Seconds per step between two sums; at least 0, because each sum was rounded."""
    pairs = zip([0, *steps], steps, [0.0, *sums], sums, strict=False)
    return [max(0.0, (end - start) / max(1, last - before)) for before, last, start, end in pairs]


def scheduled(record: Record) -> bool:
    """Whether the compression level of any codec could change."""
    return any((outcome.report or {}).get("schedule") for outcome in record.outcomes)


def level_kind(record: Record) -> str:
    """What is drawn as compression level: theta if all codecs with a schedule have it, else the level."""
    runs = [o for o in record.outcomes if (o.report or {}).get("schedule")]
    return (
        "theta" if all((run.report or {}).get("theta") is not None for run in runs) else "compression_level"
    )


def level_axis(record: Record) -> str:
    """The name of its axis."""
    return "theta: part dropped" if level_kind(record) == "theta" else "compression level"


def level_rows(record: Record, outcome: RunOutcome) -> list[Row]:
    """The rows of a run that tell its compression level."""
    what = level_kind(record)
    return [row for row in record.rows[outcome.label] if row["row"] == "step" and what in row]


@dataclass(frozen=True)
class StepCost:
    """The cost of one step, stage after stage: nothing overlaps.

    At the link of the run it is no less than what was measured: what bytes and stages do not explain is
    "wait", which stays at any link.

    >>> StepCost({"compute": 0.010, "encode": 0.002}, num_bytes=1e6).seconds(rate=1e9)
    0.02
    """

    stages: dict[str, float]  # seconds
    num_bytes: float

    @property
    def exchange_s(self) -> float:
        """What the exchange adds to computing, without its bytes."""
        return sum(seconds for name, seconds in self.stages.items() if name != "compute")

    def seconds(self, rate: float) -> float:
        """Seconds of a step on a link of so many bits per second."""
        return sum(self.stages.values()) + 8 * self.num_bytes / rate


def mean_cost(costs: Sequence[StepCost]) -> StepCost:
    """The mean over runs of one codec; a stage that a run does not have counts as 0."""
    names = dict.fromkeys(name for cost in costs for name in cost.stages)
    stages = {name: fmean(cost.stages.get(name, 0.0) for cost in costs) for name in names}
    return StepCost(stages, fmean(cost.num_bytes for cost in costs))


def codec_cost(record: Record, codec: str) -> StepCost:
    """What a step of a codec costs, over all its runs."""
    runs = [outcome for outcome in record.outcomes if outcome.asked == codec]
    return mean_cost([step_cost(run, record.rows[run.label], rate_of(record)) for run in runs])


def rate_of(record: Record) -> float:
    """Bits per second of the link of the runs; infinite if there was no limit."""
    rate = record.origin.recipe.get("rate")
    return parse_rate(rate) if rate else float("inf")


def step_cost(outcome: RunOutcome, rows: list[Row], rate: float) -> StepCost:
    """What a run's steps cost on average; computing is what a step took without waiting for gradients."""
    last = next((row for row in reversed(rows) if "waited_s" in row), {})
    waited = last.get("waited_s", 0.0) / max(last.get("seconds", 0.0), 1e-9)
    stages = {"compute": outcome.step_ms / 1e3 * (1 - min(1.0, waited))}
    link_s, travel_s = 8 * outcome.bytes_per_step / rate, 0.0
    if outcome.report is not None:
        stages |= {name: operation_ms(outcome, name) / 1e3 for name in EXCHANGE}
        travel_s = operation_ms(outcome, "travel") / 1e3
    unexplained = outcome.step_ms / 1e3 - sum(stages.values())
    stages["wait"] = max(0.0, travel_s - link_s, unexplained - link_s)
    return StepCost(stages, outcome.bytes_per_step)


@dataclass(frozen=True)
class RunCurve:
    """`y` has NaN where the run had no finite value; `base` is all but the bytes, in seconds."""

    step: tuple[float, ...]
    y: tuple[float, ...]
    bytes: tuple[float, ...]
    base: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Short numbers for JSON, None for what is not finite."""
        return {field.name: [_short(value) for value in getattr(self, field.name)] for field in fields(self)}


def score_curve(outcome: RunOutcome, rows: list[Row], rate: float, factor: float) -> RunCurve:
    """The score at every evaluation."""
    found = [row for row in rows if row["row"] == "evaluation"]
    steps, scores = [row["step"] for row in found], [factor * row["score"] for row in found]
    return _curve(outcome, rows, rate, steps, scores)


def loss_curve(outcome: RunOutcome, rows: list[Row], rate: float) -> RunCurve:
    """The training loss of worker 0, as the mean over the steps before."""
    losses: dict[int, float] = {}
    for row in rows:
        if row["row"] == "step":
            some = row.get("losses", [row["loss"]])
            losses |= {row["step"] - len(some) + 1 + k: loss for k, loss in enumerate(some)}
    steps, values = list(losses), np.array(list(losses.values()))
    window = max(1, len(steps) // WINDOWS)
    ends = sorted({round(end) for end in np.linspace(0, len(steps) - 1, POINTS)}) if steps else []
    means = [float(values[max(0, end + 1 - window) : end + 1].mean()) for end in ends]
    return _curve(outcome, rows, rate, [steps[end] for end in ends], means)


def _curve(outcome: RunOutcome, rows: list[Row], rate: float, steps: list[int], y: list[float]) -> RunCurve:
    timed = [row for row in rows if row["row"] in ("step", "evaluation")]
    first = start_of(rows)
    known = [row for row in timed if "waited_s" in row] or timed  # of older records no row has it
    computed = [row["seconds"] - row.get("waited_s", 0.0) for row in known]
    metered = [row for row in timed if "bytes" in row]
    base = np.interp(steps, [first, *(row["step"] for row in known)], [0.0, *computed])
    base += step_cost(outcome, rows, rate).exchange_s * (np.array(steps) - first)
    sent = np.interp(steps, [first, *(row["step"] for row in metered)], [0.0, *(r["bytes"] for r in metered)])
    return RunCurve(tuple(map(float, steps)), tuple(y), tuple(sent.tolist()), tuple(base.tolist()))


def mean_curve(curves: Sequence[RunCurve]) -> RunCurve | None:
    """The mean of curves with the same steps; None where they differ."""
    if len({curve.step for curve in curves}) != 1:
        return None
    means = (np.mean([getattr(curve, field.name) for curve in curves], axis=0) for field in fields(RunCurve))
    return RunCurve(*(tuple(mean.tolist()) for mean in means))


def _short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None

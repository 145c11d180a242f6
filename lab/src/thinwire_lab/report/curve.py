"""A curve: a value through a run, against steps, bytes, and the seconds that no link decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from thinwire_lab.report.outcome import Outcome, Row, start_of
from thinwire_lab.report.step_cost import step_cost

POINTS = 150  # of a loss curve
WINDOWS = 25  # a loss is a mean over this part of the run, the steps before it
DIGITS = 5


@dataclass(frozen=True)
class Curve:
    """`y` has NaN where the run had no finite value; `base` is all but the bytes, in seconds."""

    step: tuple[float, ...]
    y: tuple[float, ...]
    bytes: tuple[float, ...]
    base: tuple[float, ...]

    def to_dict(self) -> dict[str, Any]:
        """Short numbers for JSON, None for what is not finite."""
        return {field.name: [_short(value) for value in getattr(self, field.name)] for field in fields(self)}


def score_curve(outcome: Outcome, rows: list[Row], rate: float, factor: float) -> Curve:
    """The score at every evaluation."""
    found = [row for row in rows if row["row"] == "evaluation"]
    steps, scores = [row["step"] for row in found], [factor * row["score"] for row in found]
    return _curve(outcome, rows, rate, steps, scores)


def loss_curve(outcome: Outcome, rows: list[Row], rate: float) -> Curve:
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


def _curve(outcome: Outcome, rows: list[Row], rate: float, steps: list[int], y: list[float]) -> Curve:
    timed = [row for row in rows if row["row"] in ("step", "evaluation")]
    first = start_of(rows)
    known = [row for row in timed if "waited_s" in row] or timed  # of older records no row has it
    computed = [row["seconds"] - row.get("waited_s", 0.0) for row in known]
    metered = [row for row in timed if "bytes" in row]
    base = np.interp(steps, [first, *(row["step"] for row in known)], [0.0, *computed])
    base += step_cost(outcome, rows, rate).exchange_s * (np.array(steps) - first)
    sent = np.interp(steps, [first, *(row["step"] for row in metered)], [0.0, *(r["bytes"] for r in metered)])
    return Curve(tuple(map(float, steps)), tuple(y), tuple(sent.tolist()), tuple(base.tolist()))


def mean_curve(curves: Sequence[Curve]) -> Curve | None:
    """The mean of curves with the same steps; None where they differ."""
    if len({curve.step for curve in curves}) != 1:
        return None
    means = (np.mean([getattr(curve, field.name) for curve in curves], axis=0) for field in fields(Curve))
    return Curve(*(tuple(mean.tolist()) for mean in means))


def _short(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if np.isfinite(value) else None

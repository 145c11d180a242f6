"""The history of stages: how long each part of a step took, as measured, from one evaluation to the next."""

from __future__ import annotations

from typing import Any

from thinwire_lab.report.outcome import Row, start_of

STAGES = ("agree", "encode", "travel", "merge", "decode")  # of the exchange, on a thread of its own
PREFIX = "thinwire/seconds_per_step/"


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
    """Seconds a step between two sums; no less than none, for each sum was rounded."""
    pairs = zip([0, *steps], steps, [0.0, *sums], sums, strict=False)
    return [max(0.0, (end - start) / max(1, last - before)) for before, last, start, end in pairs]

"""A comparison: outcomes grouped by codec, each against the first, with the spread over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from thinwire_lab.report.outcome import Outcome
from thinwire_lab.spread import Spread


@dataclass(frozen=True)
class ComparedCodec:
    """One codec of a comparison. `ratio` and `speedup` are taken within each seed, then averaged."""

    codec: str
    seeds: int
    metric: str
    score: Spread
    bytes_per_step: float
    ratio: float
    dense_ratio: float  # against a ring all-reduce of fp32 gradients, computed
    step_ms: Spread
    speedup: Spread

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; of a spread the mean and the standard deviation."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        spreads = {"score": self.score, "step_ms": self.step_ms, "speedup": self.speedup}
        return values | {
            name: {"mean": spread.mean, "deviation": spread.deviation} for name, spread in spreads.items()
        }


def compare(outcomes: Sequence[Outcome]) -> list[ComparedCodec]:
    """The codecs of a comparison in the order in which codecs were named; the first is the baseline."""
    codecs = list(dict.fromkeys(outcome.asked for outcome in outcomes))
    baseline = {outcome.seed: outcome for outcome in outcomes if outcome.asked == codecs[0]}
    for (
        outcome
    ) in outcomes:  # records of several commands may lack a seed: its run is set against another one
        baseline.setdefault(outcome.seed, outcomes[0])
    return [_compared([o for o in outcomes if o.asked == codec], baseline) for codec in codecs]


def _compared(runs: list[Outcome], baseline: dict[int, Outcome]) -> ComparedCodec:
    return ComparedCodec(
        codec=runs[0].asked,
        seeds=len(runs),
        metric=runs[0].metric,
        score=Spread.of(run.score for run in runs),
        bytes_per_step=Spread.of(run.bytes_per_step for run in runs).mean,
        ratio=Spread.of(
            baseline[run.seed].bytes_per_step / max(1.0, run.bytes_per_step) for run in runs
        ).mean,
        dense_ratio=Spread.of(run.dense_bytes_per_step / max(1.0, run.bytes_per_step) for run in runs).mean,
        step_ms=Spread.of(run.step_ms for run in runs),
        speedup=Spread.of(baseline[run.seed].step_ms / run.step_ms for run in runs),
    )

"""A comparison: outcomes grouped by codec, each against the first, with the spread over seeds."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thinwire.lab.outcome import Outcome


@dataclass(frozen=True)
class Spread:
    """A mean and the standard deviation of the values behind it (0 for a single value)."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Line:
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
        """Plain values for JSON."""
        return asdict(self)


def compare(outcomes: Sequence[Outcome]) -> list[Line]:
    """The lines of a comparison in the order in which codecs were named; the first is the baseline."""
    codecs = list(dict.fromkeys(outcome.asked for outcome in outcomes))
    baseline = {outcome.seed: outcome for outcome in outcomes if outcome.asked == codecs[0]}
    return [_line([o for o in outcomes if o.asked == codec], baseline) for codec in codecs]


def _line(runs: list[Outcome], baseline: dict[int, Outcome]) -> Line:
    return Line(
        codec=runs[0].asked,
        seeds=len(runs),
        metric=runs[0].metric,
        score=_spread([run.score for run in runs]),
        bytes_per_step=statistics.fmean(run.bytes_per_step for run in runs),
        ratio=statistics.fmean(
            baseline[run.seed].bytes_per_step / max(1.0, run.bytes_per_step) for run in runs
        ),
        dense_ratio=statistics.fmean(run.dense_bytes_per_step / max(1.0, run.bytes_per_step) for run in runs),
        step_ms=_spread([run.step_ms for run in runs]),
        speedup=_spread([baseline[run.seed].step_ms / run.step_ms for run in runs]),
    )


def _spread(values: list[float]) -> Spread:
    return Spread(statistics.fmean(values), statistics.stdev(values) if len(values) > 1 else 0.0)

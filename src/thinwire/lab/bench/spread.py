"""Interleaved timing: variants take turns within one run, and ratios are formed turn by turn."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The middle of some measurements and the quartiles around it.

    >>> Spread.of([3.0, 1.0, 2.0]).median
    2.0
    """

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        if len(values) < 2:
            return cls(values[0], values[0], values[0])
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(low, median, high)

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def ratios(times: Mapping[str, Sequence[float]], base: str) -> dict[str, Spread]:
    """How many times faster than `base` each variant was, from the turns they shared."""
    return {
        name: Spread.of([b / own for b, own in zip(times[base], values, strict=True)])
        for name, values in times.items()
    }

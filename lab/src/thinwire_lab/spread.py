"""A spread: measurements of one thing, their middle and how far they lie from it."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """Some measurements, in the order in which they were made.

    >>> spread = Spread.of([3.0, 1.0, 2.0])
    >>> spread.median, spread.quartiles, spread.mean, spread.deviation
    (2.0, (1.5, 2.5), 2.0, 1.0)
    """

    values: tuple[float, ...]

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        return cls(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def quartiles(self) -> tuple[float, float]:
        """Between them lies the middle half; a single value is both."""
        if len(self.values) < 2:
            return self.values[0], self.values[0]
        low, _, high = statistics.quantiles(self.values, n=4, method="inclusive")
        return low, high

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values)

    @property
    def deviation(self) -> float:
        """The standard deviation of the sample; 0 for a single value."""
        return statistics.stdev(self.values) if len(self.values) > 1 else 0.0


def ratios(times: Mapping[str, Sequence[float]], base: str) -> dict[str, Spread]:
    """How many times faster than `base` each variant was, turn by turn: variants take turns in one run.

    >>> ratios({"ddp": [2.0, 4.0], "terngrad": [1.0, 1.0]}, base="ddp")["terngrad"].values
    (2.0, 4.0)
    """
    return {
        name: Spread.of(b / own for b, own in zip(times[base], values, strict=True))
        for name, values in times.items()
    }

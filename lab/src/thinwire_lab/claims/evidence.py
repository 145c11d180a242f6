"""Evidence: what the records say about one claim."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from thinwire_lab.claims.run import Measured
from thinwire_lab.spread import Spread


@dataclass(frozen=True)
class Evidence:
    """All runs of a study, of those seeds for which none is missing."""

    measured: Sequence[Measured]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({one.seed for one in self.measured}))

    def where(self, **settings: Any) -> Evidence:
        """The runs with these settings."""
        return Evidence(
            [
                one
                for one in self.measured
                if all(one.settings.get(name) == value for name, value in settings.items())
            ]
        )

    def values(self, value: Callable[[Measured], float]) -> Spread:
        """One number of every run, by seed."""
        return Spread.of(value(one) for one in sorted(self.measured, key=lambda one: one.seed))

    def result(self, name: str) -> Spread:
        """One figure of the results, by seed."""
        return self.values(lambda one: float(one.result[name]))

    def minus(self, other: Evidence, name: str) -> Spread:
        """The difference of a figure to that of other runs, seed by seed."""
        own, theirs = self.result(name), other.result(name)
        return Spread.of(a - b for a, b in zip(own.values, theirs.values, strict=True))

"""Reference losses: those of the run that another one is compared with; a guard is told them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from thinwire_lab.report.outcome import Row


@dataclass(frozen=True)
class ReferenceLosses:
    """(step, loss) in order; empty where there is no such run."""

    points: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of_rows(cls, rows: Iterable[Row]) -> ReferenceLosses:
        """The losses that a run told of."""
        return cls(tuple((row["step"], row["loss"]) for row in rows if row["row"] == "step"))

    def at(self, step: int) -> float | None:
        """The loss of a step, counted from 1; between two that were told it lies between them."""
        if not self.points:
            return None
        steps, losses = zip(*self.points, strict=True)
        return float(np.interp(step, steps, losses))

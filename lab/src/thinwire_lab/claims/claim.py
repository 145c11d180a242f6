"""A claim of a paper, and what settles it here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judge
from thinwire_lab.claims.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Plot = Callable[[Evidence, "Figure"], None]  # fills an empty figure


@dataclass(frozen=True)
class Claim:
    """What a paper says, and how it is checked.

    A verdict needs two seeds. Where nothing is drawn at random (a model, a count of bytes) `why_no_seeds`
    says so, and one run will do.
    """

    id: str
    paper: str
    place: str  # where in the paper
    text: str  # the claim in one sentence
    scaled_down: str  # what is smaller or other here than in the paper
    study: Study
    judge: Judge
    why_no_seeds: str = ""
    plot: Plot | None = None

    @property
    def command(self) -> str:
        """What a user types to check it."""
        if self.study.command:
            return self.study.command
        return f"thinwire claims run {self.id}" + (" --data DIR" if self.study.needs_data else "")

"""A claim whose study is made up: its runs cost nothing, and are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judgement, Word
from thinwire_lab.claims.run import Result, Run
from thinwire_lab.claims.study import Study, Tell


@dataclass(frozen=True)
class MadeStudy(Study):
    """Two runs a seed; each gives its seed."""

    performed: list[Run] = field(default_factory=list)

    def runs(self, seed: int) -> Sequence[Run]:
        return [Run("made", {"codec": codec}, seed) for codec in ("dense", "terngrad")]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        self.performed.append(run)
        tell("", 1, 1)
        return {"accuracy": 0.5 + run.seed}


def judge(evidence: Evidence) -> Judgement:
    return Judgement(f"{len(evidence.measured)} runs", Word.REPRODUCED)


def made_claim(study: Study, scaled_down: str = "all of it", why_no_seeds: str = "") -> Claim:
    return Claim("made", "Paper", "Table 1", "It works.", scaled_down, study, judge, why_no_seeds)

"""A claim whose study is made up: its runs cost nothing, and are counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from thinwire_lab.claims.claim import Claim, ClaimRun, ClaimStudy, Evidence, Judgement, Result, Tell, Verdict


@dataclass(frozen=True)
class MadeStudy(ClaimStudy):
    """Two runs a seed; each gives its seed."""

    performed: list[ClaimRun] = field(default_factory=list)

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        return [ClaimRun("made", {"codec": codec}, seed) for codec in ("dense", "terngrad")]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        self.performed.append(run)
        tell("", 1, 1)
        return {"accuracy": 0.5 + run.seed}


def judge(evidence: Evidence) -> Judgement:
    return Judgement(f"{len(evidence.measured)} runs", Verdict.REPRODUCED)


def made_claim(study: ClaimStudy, scaled_down: str = "all of it", why_no_seeds: str = "") -> Claim:
    return Claim("made", "Paper", "Table 1", "It works.", scaled_down, study, judge, why_no_seeds)

"""A settled claim: its row in the ledger, made of records and of nothing else."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.texts.words import counted
from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judgement, Word

MIN_SEEDS = 2


@dataclass(frozen=True)
class Settled:
    """A claim, the evidence and the judgement."""

    claim: Claim
    evidence: Evidence
    judgement: Judgement

    def row(self) -> dict[str, Any]:
        """Plain values for JSON."""
        claim = self.claim
        return {
            "id": claim.id,
            "paper": claim.paper,
            "place": claim.place,
            "claim": claim.text,
            "command": claim.command,
            "measured": self.judgement.measured,
            "verdict": self.judgement.verdict,
            "scaled_down": claim.scaled_down,
            "seeds": list(self.evidence.seeds) if not claim.why_no_seeds else claim.why_no_seeds,
        }


def settle(claim: Claim, folder: Path) -> Settled:
    """The one place where it is decided whether there is enough for a verdict.

    1. what cannot be tested here says why
    2. without a word on what was scaled down, without runs, or with fewer than two seeds a claim is open,
       unless nothing in it is drawn at random
    3. else the judge decides
    """
    evidence = claim.study.evidence(folder)
    return Settled(claim, evidence, _missing(claim, evidence) or claim.judge(evidence))


def _missing(claim: Claim, evidence: Evidence) -> Judgement | None:
    if claim.study.untestable:
        return Judgement("nothing", Word.UNTESTABLE, claim.study.untestable)
    if not claim.scaled_down:
        return Judgement("nothing that counts", Word.OPEN, "what was scaled down is not said")
    num_seeds, needed = len(evidence.seeds), 1 if claim.why_no_seeds else MIN_SEEDS
    if num_seeds == 0:
        return Judgement("nothing yet", Word.OPEN, f"run {claim.command}")
    if num_seeds < needed:
        return Judgement(
            "too little", Word.OPEN, f"{counted(num_seeds, 'seed')} of {needed}: run {claim.command}"
        )
    return None

"""The registry: all claims, in the order of their papers, and the verdict on each from the records."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire.texts.words import counted
from thinwire_lab.claims.claim import (
    CLAIMS_FILE,
    Claim,
    ClaimRecords,
    ClaimRun,
    Evidence,
    Judgement,
    Tell,
    Verdict,
)
from thinwire_lab.claims.papers import (
    accuracy,
    fft,
    gradiveq,
    private_records,
    speed,
    terngrad_gradients,
    terngrad_training,
)

RECORDS = Path("docs/records")  # of a clone, if the command runs in one
WITHOUT_CLONE = Path("runs/claims")


def records_folder(asked: Path | None) -> Path:
    """The folder that the user named, else docs/records of the current folder if there is one."""
    return asked or (RECORDS if RECORDS.is_dir() else WITHOUT_CLONE)


def hint(folder: Path) -> str:
    """What to tell a user whose folder has no records."""
    if any(folder.glob("*.jsonl")):
        return ""
    return (
        f"There are no records in {folder}. Those of the project are in docs/records of its repository: name "
        "that folder with --records, or make your own with thinwire claims run ID."
    )


CLAIMS: tuple[Claim, ...] = (
    *terngrad_training.WORKER_CLAIMS,
    *terngrad_training.NET_CLAIMS,
    *accuracy.TERNGRAD,
    *terngrad_gradients.CLAIMS,
    *speed.FIGURE5,
    *speed.TERNGRAD,
    *gradiveq.CORRELATION_CLAIMS,
    *accuracy.GRADIVEQ,
    *gradiveq.TRAINING_CLAIMS,
    *speed.GRADIVEQ,
    *fft.ERROR_CLAIMS,
    *fft.THETA_CLAIMS,
    *accuracy.FFT,
    *speed.FFT_CLAIMS,
    *accuracy.BASELINES,
    *private_records.CLAIMS,
)


def find_claim(id: str) -> Claim:
    """The claim of that id."""
    found = {claim.id: claim for claim in CLAIMS}
    if id not in found:
        raise LabError(f"there is no claim {id!r}: known are {', '.join(found)}")
    return found[id]


MIN_SEEDS = 2


@dataclass(frozen=True)
class JudgedClaim:
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


def judge_claim(claim: Claim, folder: Path) -> JudgedClaim:
    """The one place where it is decided whether there is enough for a verdict.

    1. what cannot be tested here says why
    2. without a word on what was scaled down, without runs, or with fewer than two seeds a claim is open,
       unless nothing in it is drawn at random
    3. else the judge decides
    """
    evidence = claim.study.evidence(folder)
    return JudgedClaim(claim, evidence, _missing(claim, evidence) or claim.judge(evidence))


def _missing(claim: Claim, evidence: Evidence) -> Judgement | None:
    if claim.study.untestable:
        return Judgement("nothing", Verdict.UNTESTABLE, claim.study.untestable)
    if not claim.scaled_down:
        return Judgement("nothing that counts", Verdict.OPEN, "what was scaled down is not said")
    num_seeds, needed = len(evidence.seeds), 1 if claim.why_no_seeds else MIN_SEEDS
    if num_seeds == 0:
        return Judgement("nothing yet", Verdict.OPEN, f"run {claim.command}")
    if num_seeds < needed:
        return Judgement(
            "too little", Verdict.OPEN, f"{counted(num_seeds, 'seed')} of {needed}: run {claim.command}"
        )
    return None


def run_claim(
    claim: Claim, folder: Path, data: Path | None, num_seeds: int | None, tell: Tell
) -> JudgedClaim:
    """Seeds one after the other, so that one is complete as early as can be; a finished run is never lost."""
    seeds = range(num_seeds if num_seeds is not None else 1 if claim.why_no_seeds else MIN_SEEDS)
    missing = _unrecorded([run for seed in seeds for run in claim.study.runs(seed)], folder)
    for number, run in enumerate(missing, 1):
        title = f"run {number} of {len(missing)}: {run.name}"

        def tell_run(what: str, done: int, of: int, title: str = title) -> None:
            tell(f"{title}, {what}" if what else title, done, of)

        tell_run("", 0, 1)
        result = claim.study.perform(run, data, tell_run)
        ClaimRecords(folder / CLAIMS_FILE).add(run, result)
    return judge_claim(claim, folder)


def _unrecorded(runs: list[ClaimRun], folder: Path) -> list[ClaimRun]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder} cannot be made ({error.strerror}): name another with --records") from error
    records = ClaimRecords(folder / CLAIMS_FILE)
    return [run for run in runs if records.find(run) is None]

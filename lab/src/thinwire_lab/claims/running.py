"""Running a claim: every run of its study that is not recorded yet, and then the verdict."""

from __future__ import annotations

from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.claim_records import ClaimRecords
from thinwire_lab.claims.run import Run
from thinwire_lab.claims.settled import MIN_SEEDS, Settled, settle
from thinwire_lab.claims.study import CLAIMS_FILE, Tell


def run_claim(claim: Claim, folder: Path, data: Path | None, num_seeds: int | None, tell: Tell) -> Settled:
    """Seeds one after the other, so that one is complete as early as can be; a finished run is never lost."""
    seeds = range(num_seeds if num_seeds is not None else 1 if claim.why_no_seeds else MIN_SEEDS)
    missing = _missing([run for seed in seeds for run in claim.study.runs(seed)], folder)
    for number, run in enumerate(missing, 1):
        title = f"run {number} of {len(missing)}: {run.name}"

        def tell_run(what: str, done: int, of: int, title: str = title) -> None:
            tell(f"{title}, {what}" if what else title, done, of)

        tell_run("", 0, 1)
        result = claim.study.perform(run, data, tell_run)
        ClaimRecords(folder / CLAIMS_FILE).add(run, result)
    return settle(claim, folder)


def _missing(runs: list[Run], folder: Path) -> list[Run]:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"{folder} cannot be made ({error.strerror}): name another with --records") from error
    records = ClaimRecords(folder / CLAIMS_FILE)
    return [run for run in runs if records.find(run) is None]

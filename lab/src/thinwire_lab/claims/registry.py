"""The registry: all claims in the order of their papers, the verdict on each, and claims.md."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import fill
from typing import Any

from thinwire.errors import LabError
from thinwire.texts import counted
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
    adam,
    fft,
    gradiveq,
    local,
    private,
    speed,
    terngrad_gradients,
    terngrad_training,
)
from thinwire_lab.report.drawing import bare, new_figure, save

RECORDS = Path("docs/records")  # of a clone, if the command runs in one
WITHOUT_CLONE = Path("runs/claims")
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
    *adam.CLAIMS,
    *local.CLAIMS,
    *private.CLAIMS,
)
MIN_SEEDS = 2
PICTURES = Path("../figures/claims")  # beside the page
WIDTH = 120
HEAD = f"""# The papers' claims, tested here

Made by `thinwire claims page` of the records in `docs/records`; do not edit. A verdict is computed from
recorded runs and begins with one of {", ".join(Verdict)}.
With fewer than {MIN_SEEDS} seeds, or if it is not said what was scaled down, a claim is open. "±" is the
standard deviation over seeds; differences are in points of accuracy, seed by seed. What counts as
reproduced is written in the judge's docstring (`lab/src/thinwire_lab/claims/papers`).
"""


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


def find_claim(id: str) -> Claim:
    """The claim of that id."""
    found = {claim.id: claim for claim in CLAIMS}
    if id not in found:
        raise LabError(f"there is no claim {id!r}: known are {', '.join(found)}")
    return found[id]


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
    """The only place that decides whether the records suffice for a verdict.

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
    """Makes the missing runs, seed by seed, and judges the claim. A finished run is never lost."""
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


def write_page(judged: Sequence[JudgedClaim], path: Path) -> None:
    """The page and a picture for every claim that has one."""
    drawn = [one for one in judged if _has_picture(one)]
    for one in drawn:
        draw(one, path.parent / PICTURES / f"{one.claim.id}.png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(judged))
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): give another --out") from error


def page(judged: Sequence[JudgedClaim]) -> str:
    """The text: a table of all, then a section for each."""
    words = [one.judgement.word for one in judged]
    counts = ", ".join(f"{words.count(word)} {word}" for word in Verdict if word in words)
    lines = [
        HEAD,
        f"**{len(judged)} claims: {counts}.**",
        "",
        "| claim | paper | verdict |",
        "|---|---|---|",
    ]
    lines += [
        f"| [{one.claim.id}](#{one.claim.id}) | {one.claim.paper} | {one.judgement.word} |" for one in judged
    ]
    for one in judged:
        lines += ["", *_section(one)]
    return "\n".join(lines) + "\n"


def draw(one: JudgedClaim, path: Path) -> None:
    """The picture of one claim."""
    assert one.claim.plot is not None
    figure = new_figure(7, 3.6)
    figure.set_dpi(80)
    one.claim.plot(one.evidence, figure)
    for axes in figure.axes:
        bare(axes)
    save(figure, path)


def _has_picture(one: JudgedClaim) -> bool:
    return one.claim.plot is not None and one.judgement.word not in (Verdict.OPEN, Verdict.UNTESTABLE)


def _section(one: JudgedClaim) -> list[str]:
    claim, judgement = one.claim, one.judgement
    seeds = claim.why_no_seeds or ", ".join(map(str, one.evidence.seeds)) or "none yet"
    lines = [f"## {claim.id}", "", *_wrapped(f"**{claim.paper}, {claim.place}:** {claim.text}"), ""]
    for name, text in (
        ("Verdict", f"**{judgement.word}**{judgement.verdict[len(judgement.word) :]}"),
        ("Measured", judgement.measured),
        ("Scaled down", claim.scaled_down),
        ("Seeds", seeds),
    ):
        lines += _wrapped(f"- {name}: {text}", indent="  ")
    lines += ["", "```", claim.command, "```"]
    if _has_picture(one):
        lines += ["", f"![{claim.id}]({(PICTURES / claim.id).as_posix()}.png)"]
    return lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False).split(
        "\n"
    )

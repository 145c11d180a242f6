"""The page of the claims: docs/claims.md and its pictures, made of records and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from textwrap import fill

from thinwire.errors import LabError
from thinwire_lab.claims.claim import Verdict
from thinwire_lab.claims.registry import MIN_SEEDS, JudgedClaim
from thinwire_lab.report.drawing import bare, new_figure, save

PICTURES = Path("figures/claims")  # beside the page
WIDTH = 120
HEAD = f"""# The papers' claims, settled here

Made by `thinwire claims page` of the records in [records](records); do not edit. A verdict is computed from
recorded runs and begins with one of {", ".join(Verdict)}.
With fewer than {MIN_SEEDS} seeds, or if it is not said what was scaled down, a claim is open. "±" is the
standard deviation over seeds; differences are in points of accuracy, seed by seed. What counts as
reproduced is written in the judge's docstring (`lab/src/thinwire_lab/claims/papers`).
"""


def write_page(settled: Sequence[JudgedClaim], path: Path) -> None:
    """The page and a picture for every claim that has one."""
    drawn = [one for one in settled if _has_picture(one)]
    for one in drawn:
        draw(one, path.parent / PICTURES / f"{one.claim.id}.png")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(page(settled))
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): give another --out") from error


def page(settled: Sequence[JudgedClaim]) -> str:
    """The text: a table of all, then a section for each."""
    words = [one.judgement.word for one in settled]
    counts = ", ".join(f"{words.count(word)} {word}" for word in Verdict if word in words)
    lines = [
        HEAD,
        f"**{len(settled)} claims: {counts}.**",
        "",
        "| claim | paper | verdict |",
        "|---|---|---|",
    ]
    lines += [
        f"| [{one.claim.id}](#{one.claim.id}) | {one.claim.paper} | {one.judgement.word} |" for one in settled
    ]
    for one in settled:
        lines += ["", *_section(one)]
    return "\n".join(lines) + "\n"


def draw(settled: JudgedClaim, path: Path) -> None:
    """The picture of one claim."""
    assert settled.claim.plot is not None
    figure = new_figure(7, 3.6)
    figure.set_dpi(80)
    settled.claim.plot(settled.evidence, figure)
    for axes in figure.axes:
        bare(axes)
    save(figure, path)


def _has_picture(settled: JudgedClaim) -> bool:
    return settled.claim.plot is not None and settled.judgement.word not in (Verdict.OPEN, Verdict.UNTESTABLE)


def _section(settled: JudgedClaim) -> list[str]:
    claim, judged = settled.claim, settled.judgement
    seeds = claim.why_no_seeds or ", ".join(map(str, settled.evidence.seeds)) or "none yet"
    lines = [f"## {claim.id}", "", *_wrapped(f"**{claim.paper}, {claim.place}:** {claim.text}"), ""]
    for name, text in (
        ("Verdict", f"**{judged.word}**{judged.verdict[len(judged.word) :]}"),
        ("Measured", judged.measured),
        ("Scaled down", claim.scaled_down),
        ("Seeds", seeds),
    ):
        lines += _wrapped(f"- {name}: {text}", indent="  ")
    lines += ["", "```", claim.command, "```"]
    if _has_picture(settled):
        lines += ["", f"![{claim.id}]({(PICTURES / claim.id).as_posix()}.png)"]
    return lines


def _wrapped(text: str, indent: str = "") -> list[str]:
    return fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False).split(
        "\n"
    )

"""Tables of kept accuracy: cells for the terminal, markdown for the docs."""

from __future__ import annotations

from thinwire.errors import LabError
from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.tables import score
from thinwire_lab.study.kept import BASELINES, Kept, KeptStudy

HEADS = ("codec", "score", "against DDP, seed by seed", "bytes: times fewer", "verdict")
BEGIN, END = "<!-- kept: {name} -->", "<!-- end -->"


def kept_rows(study: KeptStudy) -> list[list[str]]:
    """A row for each codec."""
    return [
        [
            line.codec,
            score(line.metric, line.score, len(line.seeds) > 1),
            _difference(line),
            f"{line.ratio:.1f}x",
            "" if line.codec in BASELINES else line.verdict,
        ]
        for line in study.codecs
    ]


def kept_markdown(study: KeptStudy) -> str:
    """The table of a study as markdown; codecs are code, those that are kept stand out."""
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for row in kept_rows(study):
        verdict = "**kept**" if row[-1] == "kept" else row[-1]
        lines.append(f"| `{row[0]}` | {' | '.join([*row[1:-1], verdict])} |")
    return "\n".join(lines) + "\n"


def put_table(text: str, name: str, table: str) -> str:
    """A page with the table called `name` in place of the one that it had.

    >>> put_table("a\\n<!-- kept: x -->\\nold\\n<!-- end -->\\nb", "x", "new\\n")
    'a\\n<!-- kept: x -->\\nnew\\n<!-- end -->\\nb'
    """
    begin = BEGIN.format(name=name)
    before, found, rest = text.partition(begin + "\n")
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise LabError(f"the page has no place for the table: write {begin} and {END} where it belongs")
    return f"{before}{begin}\n{table}{END}{after}"


def _difference(line: Kept) -> str:
    factor, digits = (100, 2) if line.metric == ACCURACY else (1, 3)
    spread = f" ± {factor * line.difference.deviation:.{digits}f}" if len(line.seeds) > 1 else ""
    return f"{factor * line.difference.mean:+.{digits}f}{spread}"

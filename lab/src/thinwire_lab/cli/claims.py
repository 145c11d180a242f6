"""`thinwire claims`: what the papers say, what was measured here, and the verdict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thinwire.errors import LabError
from thinwire_lab.cli.bars import ProgressBar
from thinwire_lab.cli.options import Data, Json, print_json_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from thinwire_lab.claims.registry import JudgedClaim

claims = typer.Typer(invoke_without_command=True)

Records = Annotated[
    Path | None,
    typer.Option(help="Folder of records. Default: docs/records in the current folder, else runs/claims."),
]


@claims.callback()
def registry(context: typer.Context, records: Records = None, as_json: Json = False) -> None:
    """List the papers' claims: what was measured here, and a verdict on each.

    \b
    Examples:
      thinwire claims
      thinwire claims --json
      thinwire claims run terngrad-workers --data DIR
    """
    if context.invoked_subcommand is not None:
        return
    from thinwire_lab.claims.registry import CLAIMS, hint, judge_claim, records_folder

    folder = records_folder(records)
    if note := hint(folder):  # first: without records there is nothing else to say
        typer.echo(f"thinwire: {note}", err=True)
    judged = [judge_claim(claim, folder) for claim in CLAIMS]
    if as_json:
        print_json_rows(one.row() for one in judged)
        return
    _print_registry(judged)
    if note:
        typer.echo(note)


@claims.command()
def run(
    id: Annotated[str, typer.Argument(metavar="ID", help="ID of the claim, as `thinwire claims` lists it.")],
    data: Data = None,
    seeds: Annotated[
        int | None, typer.Option(help="Number of seeds; default: as many as a verdict needs.", min=1)
    ] = None,
    records: Records = None,
    as_json: Json = False,
) -> None:
    """Make those runs of a claim that are not recorded yet, and print the verdict.

    \b
    Examples:
      thinwire claims run terngrad-workers --data DIR
      thinwire claims run fft-errors --data DIR --seeds 3
      thinwire claims run terngrad-figure5 --json
    """
    from thinwire_lab.claims.registry import find_claim, records_folder, run_claim

    claim = find_claim(id)
    with ProgressBar(as_json) as bar:
        judged = run_claim(claim, records_folder(records), data, seeds, bar.tell)
    if as_json:
        print_json_rows([judged.row()])
        return
    _print_one(judged)


@claims.command()
def page(
    out: Annotated[Path, typer.Option(help="The page; its pictures go to figures/claims beside it.")] = Path(
        "docs/background/claims.md"
    ),
    records: Records = None,
) -> None:
    """Write the page of all claims, with pictures, of the records.

    \b
    Examples:
      thinwire claims page
      thinwire claims page --out claims.md --records docs/records
    """
    from thinwire_lab.claims.registry import CLAIMS, judge_claim, records_folder, write_page

    if not out.parent.is_dir():
        raise LabError(
            f"{out.parent} does not exist here: go to the folder of thinwire's source, or pass --out"
        )
    folder = records_folder(records)
    write_page([judge_claim(claim, folder) for claim in CLAIMS], out)
    typer.echo(f"{out}: {len(CLAIMS)} claims", err=True)


def _print_registry(judged: Sequence[JudgedClaim]) -> None:
    """A table; the claim, what was measured and the verdict stand below each other, so that 80 columns do."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=True, padding=(0, 1, 1, 0))
    table.add_column("id / paper", no_wrap=True, min_width=26)
    table.add_column("claim / measured / verdict")
    for one in judged:
        claim, judgement = one.claim, one.judgement
        texts = (
            escape(claim.text),
            f"[dim]{escape(judgement.measured)}[/]",
            f"[bold]{judgement.word}[/]{escape(judgement.verdict[len(judgement.word) :])}",
        )
        table.add_row(f"[bold]{claim.id}[/]\n[dim]{claim.paper}[/]", "\n".join(texts))
    Console().print(table, highlight=False)
    words = [one.judgement.word for one in judged]
    counts = ", ".join(f"{words.count(word)} {word}" for word in dict.fromkeys(words))
    Console().print(f"{len(judged)} claims: {counts}", highlight=False)


def _print_one(judged: JudgedClaim) -> None:
    from rich.console import Console
    from rich.markup import escape

    claim, judgement = judged.claim, judged.judgement
    for name, text in (
        ("claim", f"{claim.text} ({claim.paper}, {claim.place})"),
        ("scaled down", claim.scaled_down),
        ("measured", judgement.measured),
        ("verdict", judgement.verdict),
    ):
        Console().print(f"[bold]{name}:[/] {escape(text)}", highlight=False)

"""What the lab adds to `thinwire private`: demo, train, search, bench, pareto."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thinwire_lab.cli.options import Json, Out
from thinwire_lab.cli.private_bench import bench
from thinwire_lab.cli.private_search import pareto, search
from thinwire_lab.cli.private_train import train
from thinwire_private.cli.show import ProgressOutput, VariantName, print_row, print_table


def demo(
    images: Annotated[int, typer.Option(help="Images of the digits test set.", min=1)] = 20,
    variant: VariantName = "ours",
    model: Annotated[
        Path | None, typer.Option(help="A .twq file for digits; default: train one now.")
    ] = None,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Two processes on this machine: a CNN on digits, private predictions equal to the plaintext ones.

    Shows bytes (predicted and measured), flights and seconds per layer and operator, and
    writes a page with the picture. Takes less than two minutes and downloads nothing.

    \b
    Examples:
      thinwire private demo
      thinwire private demo --images 5 --variant S6-ss8
      thinwire private demo --json
    """
    from thinwire_lab.cli.runs import command_line
    from thinwire_lab.private.demo import run_demo

    with ProgressOutput(quiet=json) as teller:
        outcome, folder = run_demo(images, variant, model, out, command_line(), teller.say, teller.step)
    if json:
        for entry in outcome.entries:
            print_row({"row": "operator", **entry.row()})
        print_row({**outcome.row(), "page": str(folder / "report.html")})
    else:
        _show(outcome, folder)
    if not outcome.matches:
        raise typer.Exit(1)


def _show(outcome: Any, folder: Path) -> None:
    from thinwire_lab.private.demo import HEADS, entry_rows, phase_rows, verdict

    print_table(outcome.title, HEADS, entry_rows(outcome.entries))
    print_table(
        "In all",
        ("phase", "predicted bytes", "measured bytes", "flights", "seconds", ""),
        phase_rows(outcome),
    )
    typer.echo(verdict(outcome))
    typer.echo(f"page: {folder / 'report.html'}")


COMMANDS = {command.__name__: command for command in (demo, train, search, bench, pareto)}

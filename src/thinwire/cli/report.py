"""`thinwire report`: the HTML report of a run folder, made again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thinwire.cli.options import Json, Picture


def report(
    folder: Annotated[Path, typer.Argument(help="A folder that train, compare or demo wrote.")],
    json: Json = False,
    png: Picture = False,
) -> None:
    """Make report.html again from the rows and the summary in a run folder, and print its table.

    \b
    Examples:
      thinwire report runs/demo-20250101-120000
      thinwire report runs/demo-20250101-120000 --png
    """
    from thinwire.cli.run_output import show_record
    from thinwire.lab.report.record import read_record
    from thinwire.lab.report.run_report import write_report

    record = read_record(folder)
    write_report(record, folder, png)
    show_record(record, folder, json)

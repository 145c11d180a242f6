"""How commands show runs: progress while they go, then a table or JSON rows, then where the report is."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from thinwire_lab.cli.row_table import print_json_rows, print_table
from thinwire_lab.report.comparison import compare
from thinwire_lab.report.record import REPORT, Record
from thinwire_lab.report.run_report import verdict
from thinwire_lab.report.tables import headline
from thinwire_lab.report.title import title_of
from thinwire_lab.run.progress import Live
from thinwire_lab.run.session import Session
from thinwire_lab.run.tensorboard_log import logged


def show_session(session: Session, as_json: bool, tensorboard: Path | None = None) -> None:
    """Run a session with live progress and show what came out; with JSON, progress goes to standard error."""
    with Live(Console(stderr=as_json)) as live, logged(live, tensorboard) as progress:
        record, folder = replace(session, command=command_line()).run(progress)
    show_record(record, folder, as_json)


def show_record(record: Record, folder: Path, as_json: bool) -> None:
    """The table of a record, what it says in one sentence, and where its report is."""
    lines = compare(record.outcomes)
    if as_json:
        print_json_rows({**line.to_dict(), "folder": str(folder)} for line in lines)
        return
    print_table(*headline(lines), title=title_of(record), title_style="bold")
    console = Console()
    if sentence := verdict(lines, slowed=bool(record.origin.recipe["rate"])):
        console.print(escape(sentence), highlight=False)
    for outcome in record.outcomes:
        if decided := (outcome.report or {}).get("auto"):
            console.print(escape(f"seed {outcome.seed}: {decided}"), highlight=False)
    console.print(f"report: {escape(str(folder / REPORT))}", highlight=False, soft_wrap=True)


def command_line() -> str:
    """The command as the user typed it."""
    return shlex.join(["thinwire", *sys.argv[1:]])

"""How commands show runs: progress while they go, then a table or JSON rows, then where the report is."""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from thinwire.lab.comparison import compare
from thinwire.lab.progress import Live
from thinwire.lab.record import REPORT, Record
from thinwire.lab.report import verdict
from thinwire.lab.session import Session
from thinwire.lab.tables import headline


def show_session(session: Session, as_json: bool) -> None:
    """Run a session with live progress and show what came out; with JSON, progress goes to standard error."""
    with Live(Console(stderr=as_json)) as progress:
        record, folder = replace(session, command=command_line()).run(progress)
    show_record(record, folder, as_json)


def show_record(record: Record, folder: Path, as_json: bool) -> None:
    """The table of a record, what it says in one sentence, and where its report is."""
    lines = compare(record.outcomes)
    if as_json:
        for line in lines:
            print(json.dumps({**line.to_dict(), "folder": str(folder)}))
        return
    console = Console()
    heads, rows = headline(lines)
    table = Table(title=escape(record.origin.title), title_justify="left", title_style="bold")
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right")
    for row in rows:
        table.add_row(*map(escape, row))
    console.print(table)
    if sentence := verdict(lines):
        console.print(escape(sentence), highlight=False)
    console.print(f"report: {escape(str(folder / REPORT))}", highlight=False, soft_wrap=True)


def command_line() -> str:
    """The command as the user typed it."""
    return shlex.join(["thinwire", *sys.argv[1:]])

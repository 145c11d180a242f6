"""What the commands of `thinwire private` print: tables, JSON rows, sentences and a bar."""

from __future__ import annotations

import json as json_
import re
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from thinwire.errors import PrivateError

VariantName = Annotated[
    str, typer.Option("--variant", help="Protocols: ours, or a rung of the ladder (B0, S1, ...).")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON rows instead of a table.")]
WINDOW_S = 3600.0  # of the speed that the time left goes by
UNITS = {"B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}
TEXTS = ("layer", "operator", "phase", "widths", "kind")


def print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; words to the left, numbers to the right."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    # heads on two lines and no bars: names and numbers are whole on 80 columns
    table = Table(
        title=escape(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, padding=(0, 0, 0, 1)
    )
    for head in heads:
        is_text = head in TEXTS
        table.add_column(
            "\n".join(head.rsplit(" ", 1)),
            justify="left" if is_text else "right",
            no_wrap=True,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def print_row(row: dict[str, Any]) -> None:
    """A row of JSON."""
    typer.echo(json_.dumps(row))


def parse_bytes(text: str) -> int:
    """Bytes of a text such as 20MB; units are decimal.

    >>> parse_bytes("1.5MB")
    1500000
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]?B)\s*", text.upper())
    if not match or float(match[1]) <= 0:
        raise PrivateError(f'"{text}" is not a number of bytes: write a number with kB, MB or GB, like 20MB')
    return round(float(match[1]) * UNITS[match[2]])


class ProgressOutput:
    """Sentences and a bar on standard error."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._bars = Progress(
            *columns,
            console=self._console,
            transient=True,
            disable=quiet,
            speed_estimate_period=WINDOW_S,
        )
        self._task: Any = None
        self._quiet = quiet

    def __enter__(self) -> ProgressOutput:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        """Print a sentence."""
        if not self._quiet:
            self._console.print(text, highlight=False, markup=False)

    def step(self, done: int, of: int, text: str) -> None:
        """Move the bar."""
        if self._task is None:
            self._task = self._bars.add_task(text, total=of)
        self._bars.update(self._task, completed=done, total=of, description=text)

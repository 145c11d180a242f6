"""A row table: rows of plain values, shown as JSON lines for programs or as a table for people."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import typer

Column = tuple[str, Callable[[Any], str]]  # its heading, and a row's text in it


@dataclass(frozen=True)
class RowTable:
    """How rows are shown: the first column is text, the others are figures."""

    columns: Sequence[Column]

    def show(self, rows: Iterable[Any], title: str, as_json: bool) -> None:
        """One JSON object a line as rows come, or the whole table at the end."""
        if as_json:
            print_json_rows(rows)
            return
        print_table(
            [heading for heading, _ in self.columns],
            [[text(row) for _, text in self.columns] for row in rows],
            title,
        )


def print_json_rows(rows: Iterable[Any]) -> None:
    """Every row as soon as it comes."""
    for row in rows:
        typer.echo(json.dumps(row))


def print_table(
    heads: Sequence[str], rows: Iterable[Sequence[str]], title: str, narrow: bool = False, **style: Any
) -> None:
    """A table whose texts are shown as they are; `narrow` makes room for many columns."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if narrow:
        style |= {"box": None, "pad_edge": False, "collapse_padding": True}
    table = Table(title=escape(title), title_justify="left", **style)
    for index, head in enumerate(heads):
        justify: Any = "left" if index == 0 else "right"
        table.add_column(head, justify=justify, no_wrap=narrow and index == 0)
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def with_quartiles(median: float, quartiles: Sequence[float], unit: str, digits: int) -> str:
    """A median with the quartiles around it.

    >>> with_quartiles(2.0, (1.5, 2.55), " ms", 1)
    '2.0 ms (1.5-2.5)'
    """
    low, high = quartiles
    return f"{median:.{digits}f}{unit} ({low:.{digits}f}-{high:.{digits}f})"

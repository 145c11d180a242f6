"""What commands share: options, codecs listed in one, and rows shown as a table or as JSON lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from thinwire.cli.table import as_paragraph, column_widths

TaskName = Annotated[
    str,
    typer.Argument(
        help="digits, mnist, fashion-mnist, cifar10, shakespeare, cifar10-study, cifar10-adamw, "
        "shakespeare-study or shakespeare-long."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of weights, data order and codec.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder of data sets; default: a cache folder, filled by download.")
]
Out = Annotated[Path, typer.Option(help="Where the run folder is made.")]
NetworkName = Annotated[str, typer.Option(help="auto, netlab (root), emulated, loopback or virtual.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON row per line instead of a table.")]
Picture = Annotated[bool, typer.Option("--png", help="Also write report.png.")]

# Of benches:
Hosts = Annotated[int, typer.Option(help="Number of hosts.", min=1)]
Rate = Annotated[str, typer.Option(help="Rate of every link: 100mbit, 1gbit, ..., or none: no limit.")]
Latency = Annotated[
    str | None, typer.Option(help="Round trip between hosts, such as 20ms; netlab only.", show_default=False)
]
NetworkChoice = Annotated[
    str, typer.Option("--network", help="auto, netlab (root; the kernel shapes real links) or emulated.")
]
Repeats = Annotated[int, typer.Option(help="Timed turns.", min=1)]


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
    """A table whose texts are shown as they are; `narrow` makes room for many columns.

    Figures are never cut: the first column gives way, and where that is not enough every row is a paragraph.
    """
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    if narrow:
        style |= {"box": None, "pad_edge": False, "collapse_padding": True}
    table, cells, console = Table(title=escape(title), title_justify="left", **style), list(rows), Console()
    widths = column_widths(heads, cells, console.width - (1 if narrow else 3) * len(heads) - 1)
    if widths is None:
        if title:
            console.print(escape(title), style=style.get("title_style", "italic"), highlight=False)
        for row in cells:
            console.print(escape(as_paragraph(heads, row, console.width)), highlight=False, soft_wrap=True)
        return
    for index, (head, width) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(head, justify="left" if index == 0 else "right", width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)


def with_quartiles(median: float, quartiles: Sequence[float], unit: str, digits: int) -> str:
    """A median with the quartiles around it.

    >>> with_quartiles(2.0, (1.5, 2.55), " ms", 1)
    '2.0 ms (1.5-2.5)'
    """
    low, high = quartiles
    return f"{median:.{digits}f}{unit} ({low:.{digits}f}-{high:.{digits}f})"

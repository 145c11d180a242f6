"""What commands share: options, codecs listed in one, and rows shown as a table or as JSON lines."""

from __future__ import annotations

import csv
import json
import re
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

TaskName = Annotated[
    str,
    typer.Argument(
        help="digits, mnist, fashion-mnist, cifar10, shakespeare, cifar10-study or shakespeare-study."
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
NetworkChoice = Annotated[
    str, typer.Option("--network", help="auto, netlab (root; the kernel shapes real links) or emulated.")
]
Repeats = Annotated[int, typer.Option(help="Timed turns.", min=1)]


def split_codecs(text: str) -> tuple[str, ...]:
    """Codecs separated by commas; "option=value" after a comma belongs to the codec before it.

    Double quotes around a codec are taken off.

    >>> split_codecs('ddp, gradiveq:4,slice=64 >> qsgd:8,"topk:0.01,chunk=64"')
    ('ddp', 'gradiveq:4,slice=64 >> qsgd:8', 'topk:0.01,chunk=64')
    """
    names: list[str] = []
    for piece in next(csv.reader([text], skipinitialspace=True), []):
        if names and re.match(r"\s*\w+\s*=", piece):
            names[-1] += f",{piece.strip()}"
        else:
            names.append(piece.strip())
    return tuple(name for name in names if name)


GLUE = "\0"  # a blank at which no line is broken
FIRST_LEAST = 12  # characters that the first column must have; its texts are broken if they are longer
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
    widths = _widths(heads, cells, console.width - (1 if narrow else 3) * len(heads) - 1)
    if widths is None:
        if title:
            console.print(escape(title), style=style.get("title_style", "italic"), highlight=False)
        for row in cells:
            console.print(escape(_paragraph(heads, row, console.width)), highlight=False, soft_wrap=True)
        return
    for index, (head, width) in enumerate(zip(heads, widths, strict=True)):
        table.add_column(head, justify="left" if index == 0 else "right", width=width, overflow="fold")
    for row in cells:
        table.add_row(*map(escape, row))
    console.print(table)


def _widths(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
    """Of columns that fit: as wide as their texts, or with texts broken; None if figures would be."""
    columns = [[row[index] for row in rows] for index in range(len(heads))]
    natural = [max(map(len, (head, *cells))) for head, cells in zip(heads, columns, strict=True)]
    if sum(natural) <= room:
        return natural
    least = [max(map(_unbroken, (head, *cells))) for head, cells in zip(heads, columns, strict=True)]
    left = room - sum(least[1:])
    return None if left < min(natural[0], FIRST_LEAST) else [min(natural[0], left), *least[1:]]


def _unbroken(text: str) -> int:
    """How wide a column must be for it: words may be broken between, figures may not."""
    return max(map(len, text.split()), default=0) if text[:1].isalpha() else len(text)


def _paragraph(heads: Sequence[str], row: Sequence[str], width: int) -> str:
    """The first cell, and the others with their heads below it."""
    told = "; ".join(
        f"{head} {cell}".replace(" ", GLUE) for head, cell in zip(heads[1:], row[1:], strict=True) if cell
    )
    wrapped = textwrap.wrap(told, width - 2, break_on_hyphens=False)
    return "\n".join([*textwrap.wrap(row[0], width), *(f"  {line}" for line in wrapped)]).replace(GLUE, " ")


def with_quartiles(median: float, quartiles: Sequence[float], unit: str, digits: int) -> str:
    """A median with the quartiles around it.

    >>> with_quartiles(2.0, (1.5, 2.55), " ms", 1)
    '2.0 ms (1.5-2.5)'
    """
    low, high = quartiles
    return f"{median:.{digits}f}{unit} ({low:.{digits}f}-{high:.{digits}f})"

"""Tables as plain text, fitted to the terminal, and codecs as they are listed in one option."""

from __future__ import annotations

import csv
import re
import shutil
import textwrap
from collections.abc import Iterable, Sequence

GLUE = "\0"  # a blank at which no line is broken
FIRST_LEAST = 12  # characters that the first column must have; its texts are broken if they are longer


def format_table(heads: Sequence[str], rows: Iterable[Sequence[str]], width: int | None = None) -> str:
    """The first column is text, the others are figures, which are never cut.

    Where they do not fit the first column gives way, and where that is not enough every row is a paragraph.

    >>> print(format_table(["codec", "MB"], [["dense", "12.5"], ["fp16", "6.2"]], 40))
    codec   MB
    dense 12.5
    fp16   6.2
    """
    width = width or shutil.get_terminal_size((80, 24)).columns
    cells = [list(row) for row in rows]
    widths = column_widths(heads, cells, width - len(heads) + 1)
    if widths is None:
        return "\n".join(as_paragraph(heads, row, width) for row in cells)
    return "\n".join(line for row in (heads, *cells) for line in _lines(row, widths))


def _lines(row: Sequence[str], widths: Sequence[int]) -> Iterable[str]:
    """A row, on several lines if texts are broken; figures are aligned to the right."""
    broken = [textwrap.wrap(text, width) or [""] for text, width in zip(row, widths, strict=True)]
    for number in range(max(map(len, broken))):
        parts = [lines[number] if number < len(lines) else "" for lines in broken]
        first = parts[0].ljust(widths[0])
        rest = [part.rjust(width) for part, width in zip(parts[1:], widths[1:], strict=True)]
        yield " ".join([first, *rest]).rstrip()


def column_widths(heads: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> list[int] | None:
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
    return max(map(len, text.split()), default=1) if text[:1].isalpha() else max(1, len(text))


def as_paragraph(heads: Sequence[str], row: Sequence[str], width: int) -> str:
    """The first cell, and the others with their heads below it."""
    told = "; ".join(
        f"{head} {cell}".replace(" ", GLUE) for head, cell in zip(heads[1:], row[1:], strict=True) if cell
    )
    wrapped = textwrap.wrap(told, width - 2, break_on_hyphens=False)
    return "\n".join([*textwrap.wrap(row[0], width), *(f"  {line}" for line in wrapped)]).replace(GLUE, " ")


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

"""A table that is sorted by a click on a head: cells have a text to read and a value to sort by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """A text and what it is sorted by; `chip` is a colour before it, `codec` lets the script fill it."""

    text: str
    value: float | str
    chip: str = ""
    codec: int | None = None

    def html(self) -> str:
        """The cell as an element."""
        chip = f'<span class="chip" style="background:{self.chip}"></span>' if self.chip else ""
        codec = "" if self.codec is None else f' data-codec="{self.codec}"'
        return f'<td data-value="{escape(str(self.value))}"{codec}>{chip}{escape(self.text)}</td>'


def sortable_table(heads: Sequence[str], rows: Sequence[Sequence[Cell]], kind: str) -> str:
    """The table; without its script it is a table like any other."""
    head = "".join(f'<th aria-sort="none">{escape(text)}</th>' for text in heads)
    body = "".join("<tr>" + "".join(cell.html() for cell in row) + "</tr>" for row in rows)
    inner = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    return f'<div class="wide"><table class="{kind}">{inner}</table></div>'

"""Cells: benches that run many settings one after the other, and say which one is running."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from thinwire_lab.cli.options import split_codecs

if TYPE_CHECKING:
    from thinwire_lab.bench.cell import Cell


def whole_numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between them."""
    words = split_codecs(text)
    wrong = [word for word in words if not word.isdigit()]
    if wrong:
        raise typer.BadParameter(f'{option}: "{wrong[0]}" is no whole number: write them as in 2,4,8')
    return [int(word) for word in words]


class CellProgress:
    """Which cell is running, and how far it is, on stderr."""

    def __init__(self, num_cells: int, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import Progress

        self._bars = Progress(console=Console(stderr=True), transient=True, disable=quiet)
        self._task = self._bars.add_task("cells", total=None)
        self._num_cells, self._seen = num_cells, list[str]()

    def __enter__(self) -> CellProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def told(self, cell: Cell, row: dict[str, Any]) -> None:
        if cell.name not in self._seen:
            self._seen.append(cell.name)
        title = f"cell {len(self._seen)} of {self._num_cells}: {cell.name}"
        if row["row"] == "turn":
            self._bars.update(self._task, description=title, completed=row["turn"], total=row["of"])
        else:
            self._bars.update(self._task, description=f"{title}, measuring inputs", total=None)

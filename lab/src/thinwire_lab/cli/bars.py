"""Bars of long commands: how far, how long it took and will take, on standard error if that is a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import TracebackType
from typing import Self, TypeVar

T = TypeVar("T")


class ProgressBar:
    """One bar; quiet where standard error is no terminal, or if asked to be.

    When less is done than before it begins anew.
    """

    def __init__(self, quiet: bool) -> None:
        from rich import progress
        from rich.console import Console

        from thinwire_lab.run.progress import WINDOW_S

        console = Console(stderr=True)
        self._bars = progress.Progress(
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=quiet or not console.is_terminal,
            speed_estimate_period=WINDOW_S,
        )
        self._bar = self._bars.add_task("starting", total=None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars.live.is_started:  # stopping what never started prints an empty line
            self._bars.stop()

    def tell(self, what: str, done: float, of: float | None) -> None:
        """What is being done, and how much of it is; `of` None: nobody knows."""
        self._bars.start()
        if done < self._bars.tasks[0].completed:
            self._bars.reset(self._bar)
        self._bars.update(self._bar, description=what, completed=done, total=of)

    def over(self, items: Iterable[T], what: str, of: int) -> Iterator[T]:
        """The items; each is done when the next is asked for."""
        self.tell(what, 0, of)
        for done, item in enumerate(items, 1):
            yield item
            self.tell(what, done, of)

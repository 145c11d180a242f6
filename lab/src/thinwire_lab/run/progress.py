"""Progress: what a person sees while runs are under way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any

from thinwire.texts.words import counted
from thinwire_lab.report.outcome import Outcome, Row
from thinwire_lab.report.tables import score
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from rich.console import Console


class Progress(ABC):
    """Is told what happens, in this order: say*, (begin, row*, end)*."""

    @abstractmethod
    def say(self, text: str) -> None:
        """A sentence for the user."""

    @abstractmethod
    def begin(self, recipe: Recipe, metric: str, num_steps: int) -> None:
        """A run is being started."""

    @abstractmethod
    def row(self, row: Row) -> None:
        """A row of the current run."""

    @abstractmethod
    def end(self, outcome: Outcome) -> None:
        """The current run has ended well."""


class Silent(Progress):
    """Shows nothing: for --json and for tests."""

    def say(self, text: str) -> None:
        """Not shown."""

    def begin(self, recipe: Recipe, metric: str, num_steps: int) -> None:
        """Not shown."""

    def row(self, row: Row) -> None:
        """Not shown."""

    def end(self, outcome: Outcome) -> None:
        """Not shown."""


class Live(Progress):
    """A bar per run on the terminal: step, loss, score and time per step as they change."""

    def __init__(self, console: Console) -> None:
        from rich import progress

        self._console = console
        self._bars = progress.Progress(
            progress.SpinnerColumn(finished_text="[green]✓[/]"),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
            progress.TextColumn("{task.fields[news]}"),
            progress.TimeElapsedColumn(),
            console=console,
        )
        self._bar = progress.TaskID(0)
        self._metric, self._score = "", ""

    def __enter__(self) -> Live:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bars.live.is_started:  # stopping what never started prints an empty line
            self._bars.stop()

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def begin(self, recipe: Recipe, metric: str, num_steps: int) -> None:
        self._bars.start()
        self._metric, self._score = metric, ""
        news = f"[dim]starting {counted(recipe.workers, 'worker')} ...[/]"
        label = f"[bold]{recipe.codec}[/], seed {recipe.seed}"
        self._bar = self._bars.add_task(label, total=num_steps, news=news)

    def row(self, row: Row) -> None:
        if row["row"] == "evaluation":
            self._score = score(self._metric, Spread.of([row["score"]]), several=False)
        if row["row"] in ("step", "evaluation"):
            step_ms = 1e3 * row["seconds"] / max(1, row["step"])
            self._update(
                row["step"], f"loss {row['loss']:.3f}  {self._scored()}[dim]{step_ms:.0f} ms/step[/]"
            )

    def end(self, outcome: Outcome) -> None:
        self._update(None, f"{self._scored()}[dim]{outcome.step_ms:.1f} ms/step[/]")

    def _scored(self) -> str:
        return f"{self._metric} {self._score}  " if self._score else ""

    def _update(self, step: int | None, news: str) -> None:
        values: dict[str, Any] = {} if step is None else {"completed": step}
        self._bars.update(self._bar, news=news, **values)

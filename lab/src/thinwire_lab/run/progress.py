"""Progress: what a person sees while runs are under way, and the same as curves for TensorBoard."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np

from thinwire.errors import LabError
from thinwire.texts import counted
from thinwire_lab.report.record import Row, RunOutcome
from thinwire_lab.report.summary import score
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from rich.console import Console

WINDOW_S = 3600.0  # of the speed that the time left goes by
SCORES = {"score": "test/score", "test_loss": "test/loss", "bytes": "sent/bytes"}


class Progress(ABC):
    """Receives what happens, in this order: say*, (begin, row*, end)*."""

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
    def end(self, outcome: RunOutcome) -> None:
        """The current run has ended well."""


class Silent(Progress):
    """Shows nothing: for --json and for tests."""

    def say(self, text: str) -> None:
        """Not shown."""

    def begin(self, recipe: Recipe, metric: str, num_steps: int) -> None:
        """Not shown."""

    def row(self, row: Row) -> None:
        """Not shown."""

    def end(self, outcome: RunOutcome) -> None:
        """Not shown."""


class Live(Progress):
    """A bar per run on the terminal, with step, loss, score and times; with several runs one for all."""

    def __init__(self, console: Console, num_runs: int = 1) -> None:
        from rich import progress

        self._console = console
        self._bars = progress.Progress(
            progress.SpinnerColumn(finished_text="[green]✓[/]"),
            progress.TextColumn("{task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
            progress.TextColumn("{task.fields[news]}"),
            progress.TimeElapsedColumn(),
            progress.TextColumn("left"),
            progress.TimeRemainingColumn(),
            console=console,
            speed_estimate_period=WINDOW_S,
        )
        self._all = self._bars.add_task("all runs", total=num_runs, news="", visible=num_runs > 1)
        self._num_runs, self._ended, self._ran, self._steps = num_runs, 0, False, 1
        self._bar = self._all
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
        self._metric, self._score, self._ran, self._steps = metric, "", False, num_steps
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

    def end(self, outcome: RunOutcome) -> None:
        self._update(None, f"{self._scored()}[dim]{outcome.step_ms:.1f} ms/step[/]")
        if self._ran:
            self._ended += 1
        else:  # it was recorded
            self._num_runs -= 1
        self._bars.update(self._all, completed=self._ended, total=self._num_runs)

    def _scored(self) -> str:
        return f"{self._metric} {self._score}  " if self._score else ""

    def _update(self, step: int | None, news: str) -> None:
        values: dict[str, Any] = {} if step is None else {"completed": step}
        self._bars.update(self._bar, news=news, **values)
        if step is not None:
            self._ran = True
            self._bars.update(self._all, completed=self._ended + step / self._steps)


@contextmanager
def logged(progress: Progress, folder: Path | None) -> Iterator[Progress]:
    """The progress, and with a folder also curves in it."""
    if folder is None:
        yield progress
        return
    log = TensorBoardLog(progress, folder)
    try:
        yield log
    finally:
        log.close()


class TensorBoardLog(Progress):
    """Passes everything on to another progress and writes it down."""

    def __init__(self, inner: Progress, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise LabError(
                f"--tensorboard needs TensorBoard ({error}): run pip install tensorboard"
            ) from error
        self._inner, self._folder, self._open = inner, folder, SummaryWriter
        self._run = folder
        self._writer: Any = None

    def say(self, text: str) -> None:
        self._inner.say(text)

    def begin(self, recipe: Recipe, metric: str, num_steps: int) -> None:
        name = re.sub(r"[^\w.:=,-]+", "_", f"{recipe.codec}-seed{recipe.seed}")
        self._run = self._folder / name
        self._inner.begin(recipe, metric, num_steps)

    def row(self, row: Row) -> None:
        if self._writer is None:
            self._writer = self._open(str(self._run))
        for name, step, value in _scalars(row):
            self._writer.add_scalar(name, value, step)
        for layer in row["layers"] if row["row"] == "histograms" else ():
            for kind in ("own", "mean"):
                tag = f"gradient {kind}/{layer['layer']}"
                self._writer.add_histogram_raw(
                    tag, **_moments(layer[kind], layer["limit"]), global_step=row["step"]
                )
        self._inner.row(row)

    def end(self, outcome: RunOutcome) -> None:
        self.close()
        self._inner.end(outcome)

    def close(self) -> None:
        """What is written so far can be read."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


def _scalars(row: Row) -> Iterator[tuple[str, int, float]]:
    """Name, step and value of each number of a row."""
    step = row["step"]
    if row["row"] == "step":
        losses = row["losses"]
        yield from (("training/loss", step - len(losses) + 1 + k, loss) for k, loss in enumerate(losses))
    if row["row"] == "evaluation":
        yield from ((name, step, row[entry]) for entry, name in SCORES.items())
        yield from ((name, step, value) for name, value in row["scalars"].items())


def _moments(counts: list[int], limit: float) -> dict[str, Any]:
    """What TensorBoard wants to know of a histogram; sums are those of the bins' middles."""
    edges = np.linspace(-limit, limit, len(counts) + 1)
    middles, sizes = (edges[1:] + edges[:-1]) / 2, np.array(counts)
    return {
        "min": -limit,
        "max": limit,
        "num": int(sizes.sum()),
        "sum": float(sizes @ middles),
        "sum_squares": float(sizes @ middles**2),
        "bucket_limits": edges[1:].tolist(),
        "bucket_counts": counts,
    }

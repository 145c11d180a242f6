"""Curves for TensorBoard: the rows of runs, written as they come, a folder for each run."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from thinwire.errors import LabError
from thinwire_lab.report.outcome import Outcome, Row
from thinwire_lab.run.progress import Progress
from thinwire_lab.run.recipe import Recipe

SCORES = {"score": "test/score", "test_loss": "test/loss", "bytes": "sent/bytes"}


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

    def end(self, outcome: Outcome) -> None:
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

"""The launcher: runs a recipe as N worker processes on a network and gives the outcome."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from thinwire.errors import LabError
from thinwire.lab.crew import Crew
from thinwire.lab.data import Task
from thinwire.lab.job import Job, Losses
from thinwire.lab.network import Network
from thinwire.lab.outcome import Outcome, Row, outcome_from_rows
from thinwire.lab.recipe import Recipe

OnRow = Callable[[Row], None]


@dataclass(frozen=True)
class Stops:
    """Where a run is saved, where it goes on from and where it stops early."""

    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    resume: Path | None = None
    stop_at: int | None = None

    def check(self, recipe: Recipe) -> None:
        """Refuse what cannot work before a process is started."""
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise LabError(f"--checkpoint-every must be at least 1, not {self.checkpoint_every}")
        if self.stop_at is not None and self.stop_at < 1:
            raise LabError(f"--stop-at must be at least 1, not {self.stop_at}")
        if self.checkpoint is not None and not self.checkpoint.absolute().parent.is_dir():
            raise LabError(
                f"folder {self.checkpoint.absolute().parent} for --checkpoint does not exist: make it first"
            )
        if (self.checkpoint or self.resume) and recipe.codec.startswith("ddp-powersgd"):
            raise LabError("the state of ddp-powersgd cannot be saved: leave out --checkpoint and --resume")
        if self.resume is not None:
            self._check_resume(self.resume, recipe)

    def _check_resume(self, path: Path, recipe: Recipe) -> None:
        from thinwire.lab.checkpoint import check_same_run, read_checkpoint

        checkpoint = read_checkpoint(path)
        check_same_run(path, checkpoint, recipe)
        if self.stop_at is not None and self.stop_at <= checkpoint.step:
            raise LabError(
                f"checkpoint {path} is at step {checkpoint.step} already: --stop-at must be above it"
            )


@contextmanager
def shared_task(task: Task) -> Iterator[Path]:
    """The task written once where all workers of all runs map it into memory."""
    with tempfile.TemporaryDirectory(prefix="thinwire-task-") as name:
        task.save(Path(name))
        yield Path(name)


def launch(
    recipe: Recipe,
    task: Task,
    task_folder: Path,
    network: Network,
    on_row: OnRow,
    stops: Stops | None = None,
    reference: Losses = (),
) -> tuple[Outcome, list[Row]]:
    """Run `recipe` on `network`; a guard is told the losses of `reference`.

    1. check everything that can be checked without a process;  2. write the job;  3. start the workers and
    pass on their rows;  4. end them all and sum up.
    """
    asked, stops = recipe.codec, stops or Stops()
    recipe = replace(recipe, codec=network.codec(asked))
    check(recipe, task, stops)
    job = Job(
        recipe,
        str(task_folder.absolute()),
        network.counters,
        network.emulated_rate,
        checkpoint=_text(stops.checkpoint),
        checkpoint_every=stops.checkpoint_every,
        resume=_text(stops.resume),
        stop_at=stops.stop_at,
        reference=reference,
    )
    rows = _run(job, network, on_row)
    label = f"{asked}, seed {recipe.seed}"
    return outcome_from_rows(label, asked, recipe.codec, recipe.seed, task.metric, rows), rows


def check_names(recipe: Recipe) -> None:
    """Refuse a wrong codec or model before any data are loaded."""
    from thinwire.lab.hook import check_codec
    from thinwire.lab.models import model_card

    check_codec(recipe.codec)
    model_card(recipe.model)


def idle_notes(recipes: Sequence[Recipe], classes: int) -> list[str]:
    """What to tell of codecs that leave all of their model dense."""
    from thinwire.lab.hook import idle_note
    from thinwire.lab.models import model_card

    asked = dict.fromkeys((recipe.codec, recipe.model, recipe.workers) for recipe in recipes)
    notes = (idle_note(codec, model_card(model).build(0, classes), n) for codec, model, n in asked)
    return [note for note in notes if note is not None]


def check(recipe: Recipe, task: Task, stops: Stops) -> None:
    """Refuse a wrong codec, model, size or checkpoint once, before every worker does it."""
    from thinwire.lab.models import fit_check

    check_names(recipe)
    fit_check(recipe.model, task.name, task.train.x.shape[1:])
    recipe.steps_per_epoch(len(task.train))
    stops.check(recipe)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _run(job: Job, network: Network, on_row: OnRow) -> list[Row]:
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="thinwire-run-") as folder:
        argv = [sys.executable, "-m", "thinwire.lab.train", str(job.write(Path(folder)))]
        workers = job.recipe.workers
        with Crew(lambda rank: network.popen(rank, argv, workers), workers) as crew:
            for row in crew.rows():
                rows.append(row)
                on_row(row)
    return rows

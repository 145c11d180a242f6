"""The launcher: runs a recipe as N worker processes on a network and gives the outcome."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire_lab.data import Task
from thinwire_lab.net.network import LabNetwork
from thinwire_lab.net.workers import run_workers
from thinwire_lab.report.record import Row, RunOutcome, outcome_from_rows
from thinwire_lab.run.checkpoint import CheckpointOptions
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.trainer import ReferenceLosses

OnRow = Callable[[Row], None]


@dataclass(frozen=True)
class TrainingJob:
    """One run as its workers see it; paths are texts so that the job is plain JSON."""

    recipe: Recipe
    task_folder: str
    counters: bool  # read bytes from this host's interface counters (netlab)
    link_rate: str | None  # emulate this link inside thinwire's own group
    virtual: bool = False  # all workers are in one process
    checkpoint: str | None = None
    checkpoint_every: int | None = None  # steps
    resume: str | None = None
    stop_at: int | None = None  # step at which the run stops early
    reference: ReferenceLosses = field(default_factory=ReferenceLosses)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "recipe": self.recipe.to_dict(), "reference": self.reference.points}


def read_training_job(path: Path) -> TrainingJob:
    """The job that was written as `TrainingJob.to_dict`."""
    values: dict[str, Any] = json.loads(path.read_text())
    reference = ReferenceLosses(tuple((int(step), float(loss)) for step, loss in values["reference"]))
    return TrainingJob(**{**values, "recipe": recipe_from_dict(values["recipe"]), "reference": reference})


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
    network: LabNetwork,
    on_row: OnRow,
    checkpoints: CheckpointOptions | None = None,
    reference: ReferenceLosses | None = None,
) -> tuple[RunOutcome, list[Row]]:
    """Run `recipe` on `network`; a guard compares with the losses of `reference`.

    1. check everything that can be checked without a process;  2. write the job;  3. start the workers and
    pass on their rows;  4. end them all and sum up.
    """
    asked, checkpoints = recipe.codec, checkpoints or CheckpointOptions()
    recipe = replace(recipe, codec=network.codec(asked))
    check(recipe, task, checkpoints)
    virtual = network.processes(recipe.workers) < recipe.workers
    if virtual and (checkpoints.checkpoint or checkpoints.resume):
        raise LabError("virtual workers cannot be saved or resumed: leave that out, or name another network")
    job = TrainingJob(
        recipe,
        str(task_folder.absolute()),
        network.counters,
        network.emulated_rate,
        virtual=virtual,
        checkpoint=_text(checkpoints.checkpoint),
        checkpoint_every=checkpoints.checkpoint_every,
        resume=_text(checkpoints.resume),
        stop_at=checkpoints.stop_at,
        reference=reference or ReferenceLosses(),
    )
    rows = _run(job, network, on_row)
    label = f"{asked}, seed {recipe.seed}"
    return outcome_from_rows(label, asked, recipe.codec, recipe.seed, task.metric, rows), rows


def check_names(recipe: Recipe) -> None:
    """Refuse a wrong codec or model before any data are loaded."""
    from thinwire_lab.models import model_card
    from thinwire_lab.run.ddp_exchange import check_codec

    check_codec(recipe.codec)
    model_card(recipe.model)


def idle_notes(recipes: Sequence[Recipe], classes: int) -> list[str]:
    """Notes on codecs that leave the whole model dense."""
    from thinwire_lab.models import model_card
    from thinwire_lab.run.ddp_exchange import idle_note

    asked = dict.fromkeys((recipe.codec, recipe.model, recipe.workers) for recipe in recipes)
    notes = (idle_note(codec, model_card(model).build(0, classes), n) for codec, model, n in asked)
    return [note for note in notes if note is not None]


def check(recipe: Recipe, task: Task, checkpoints: CheckpointOptions) -> None:
    """Refuse a wrong codec, model, size or checkpoint once, before every worker does it."""
    from thinwire_lab.models import fit_check

    check_names(recipe)
    fit_check(recipe.model, task.name, task.train.x.shape[1:])
    recipe.steps_per_epoch(len(task.train))
    checkpoints.check(recipe)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path.absolute())


def _run(job: TrainingJob, network: LabNetwork, on_row: OnRow) -> list[Row]:
    rows: list[Row] = []
    count = network.processes(job.recipe.workers)
    workers = run_workers("thinwire_lab.run.worker", job.to_dict(), network, count)
    with closing(workers):  # also if `on_row` raises
        for row in workers:
            rows.append(row)
            on_row(row)
    return rows

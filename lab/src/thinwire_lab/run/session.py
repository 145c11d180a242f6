"""A session: several recipes run one after the other on one network, recorded in one folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.data import Task, load_task
from thinwire_lab.net.network import AUTO, LabNetwork, open_network
from thinwire_lab.report.record import Record, Row, RunOutcome, describe, make_folder, write_record
from thinwire_lab.report.run_report import write_report
from thinwire_lab.run.checkpoint import CheckpointOptions
from thinwire_lab.run.launch import check, check_names, idle_notes, launch, shared_task
from thinwire_lab.run.progress import Progress
from thinwire_lab.run.recipe import Recipe, read_codec_choice
from thinwire_lab.run.records import RECORDS, RunRecords, RunSettings
from thinwire_lab.run.trainer import ReferenceLosses


@dataclass(frozen=True)
class TrainingSession:
    """What is run and where its results go."""

    title: str
    name: str  # of the run folder
    recipes: tuple[Recipe, ...]
    out: Path
    data: Path | None = None
    network: str = AUTO
    checkpoints: CheckpointOptions | None = None
    picture: bool = False
    command: str = ""  # as typed, for the report
    records: Path | None = None  # where finished runs are written down; None: in the run folder

    def run(self, progress: Progress) -> tuple[Record, Path]:
        """Run all recipes in order.

        1. check every recipe, load the data, check what needs them, make the folder;  2. open the network and
        run;  3. after each run write what there is: a failure or Ctrl-C loses nothing that was finished;
        4. write the report.
        """
        from rich.markup import escape

        first = self.recipes[0]
        if self.records is not None:
            RunRecords(self.records).check()
        for recipe in self.recipes:
            check_names(recipe)
        task = load_task(first.task, self.data, progress.say)
        with open_network(first.rate, first.workers, self.network) as network:
            for recipe in self.recipes:
                check(
                    replace(recipe, codec=network.codec(recipe.codec)),
                    task,
                    self.checkpoints or CheckpointOptions(),
                )
            for note in idle_notes(self.recipes, task.classes):
                progress.say(f"[yellow]{escape(note)}[/]")
            folder = make_folder(self.out, self.name)
            progress.say(f"[dim]network: {network.note()}[/]")
            try:
                record = self._run_all(task, network, folder, progress)
            except BaseException:
                remove_if_empty(folder)
                raise
        write_report(record, folder, self.picture)
        return record, folder

    def _run_all(self, task: Task, network: LabNetwork, folder: Path, progress: Progress) -> Record:
        origin = describe(self.title, self.command, network.note(), self.recipes[0].to_dict())
        record = Record(origin, (), {})
        baselines: dict[int, ReferenceLosses] = {}  # by seed: of the codec that was named first
        records = RunRecords(self.records or folder / RECORDS)
        with shared_task(task) as task_folder:
            for recipe in self.recipes:
                progress.begin(recipe, task.metric, recipe.num_steps(len(task.train)))
                settings, reference = self._settings(recipe, network), baselines.get(recipe.seed)
                known = records.find(settings) if self._recorded else None
                outcome, rows = known or launch(
                    recipe, task, task_folder, network, progress.row, self.checkpoints, reference
                )
                if known is None and self._recorded:
                    records.add(settings, outcome, rows)
                baselines.setdefault(recipe.seed, ReferenceLosses.of_rows(rows))
                record = _extended(record, outcome, rows)
                write_record(folder, record)
                progress.end(outcome)
        return record

    @property
    def _recorded(self) -> bool:
        """A run that can be saved, stopped and resumed is always run."""
        return self.checkpoints is None

    def _settings(self, recipe: Recipe, network: LabNetwork) -> RunSettings:
        guarded = (read_codec_choice(recipe.codec).schedule or "").startswith("guard")
        return RunSettings(recipe, network.kind, self.recipes[0].codec if guarded else "")


def _extended(record: Record, outcome: RunOutcome, rows: list[Row]) -> Record:
    shown = [row for row in rows if row["row"] != "result"]  # the result is in the outcome
    return Record(record.origin, (*record.outcomes, outcome), {**record.rows, outcome.label: shown})


def grid(recipe: Recipe, codecs: Sequence[str], num_seeds: int) -> tuple[Recipe, ...]:
    """Codecs times seeds, interleaved: a machine that slows down meanwhile slows all codecs alike."""
    if num_seeds < 1:
        raise LabError(f"--seeds must be at least 1, not {num_seeds}")
    if len(set(codecs)) != len(codecs):
        raise LabError(f"codecs {', '.join(codecs)} name one twice: name each once")
    if not codecs:
        raise LabError("no codec named: give for example --codecs ddp,terngrad")
    seeds = range(recipe.seed, recipe.seed + num_seeds)
    return tuple(replace(recipe, codec=codec, seed=seed) for seed in seeds for codec in codecs)


def remove_if_empty(folder: Path) -> None:
    """Leave no empty run folder behind when the very first run failed."""
    if not any(folder.iterdir()):
        folder.rmdir()

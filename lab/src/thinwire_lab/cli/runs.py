"""`thinwire train`, `compare`, `demo` and `report`: training runs, and how they are shown.

Options that `train` and `compare` share are fields of `RunOptions`. What needs torch is imported late, so
that a mistake in a name is reported at once.
"""

from __future__ import annotations

import inspect
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from thinwire.cli.table import split_codecs
from thinwire.texts import rate_or_none
from thinwire_lab.cli.options import (
    Data,
    Json,
    NetworkName,
    Out,
    Picture,
    Seed,
    TaskName,
    print_json_rows,
    print_table,
)
from thinwire_lab.net.network import AUTO
from thinwire_lab.run.recipe import Recipe, read_codec_choice, recipe_for

if TYPE_CHECKING:
    from thinwire_lab.report.record import Record
    from thinwire_lab.run.checkpoint import CheckpointOptions
    from thinwire_lab.run.session import TrainingSession

IN_RECIPE = ("workers", "model", "epochs", "steps", "batch", "lr", "evaluations", "seed")


@dataclass(frozen=True)
class RunOptions:
    """What the user asks for beside task and codec; None: as the task's recipe has it."""

    workers: Annotated[int, typer.Option(help="Worker processes.")] = 4
    rate: Annotated[
        str | None,
        typer.Option(help="Rate of every worker's link, e.g. 100mbit; default, or none: no limit."),
    ] = None
    model: Annotated[str | None, typer.Option(help="Model; default: the one of the task's recipe.")] = None
    epochs: Annotated[
        float | None, typer.Option(help="Passes over the data; default: the task's recipe.")
    ] = None
    steps: Annotated[int | None, typer.Option(help="Steps, instead of epochs.")] = None
    batch: Annotated[int | None, typer.Option(help="Examples per worker and step.")] = None
    lr: Annotated[float | None, typer.Option("--lr", help="Peak learning rate.")] = None
    evaluations: Annotated[int | None, typer.Option(help="How often the model is scored; default: 10.")] = (
        None
    )
    seed: Seed = 0
    data: Data = None
    out: Out = Path("runs")
    network: NetworkName = AUTO
    json: Json = False
    png: Picture = False
    tensorboard: Annotated[
        Path | None,
        typer.Option(help="Also write TensorBoard curves into this folder, one subfolder per run."),
    ] = None

    def recipe(self, task: str, codecs: Sequence[str]) -> Recipe:
        """The task's recipe with what the user asked for.

        Unknown names and invalid rates are refused here, before anything slow is imported.
        """
        recipe = recipe_for(task)
        for codec in codecs:
            read_codec_choice(codec).check_names()
        wishes = {name: getattr(self, name) for name in IN_RECIPE}
        wishes["rate"] = rate_or_none(self.rate)
        return replace(recipe, **{name: value for name, value in wishes.items() if value is not None})

    def show(
        self,
        title: str,
        name: str,
        recipes: tuple[Recipe, ...],
        checkpoints: CheckpointOptions | None = None,
        records: Path | None = None,
    ) -> None:
        """Run the recipes in one session and show what came out."""
        from thinwire_lab.cli.runs import show_session
        from thinwire_lab.run.session import TrainingSession

        session = TrainingSession(
            title=title,
            name=name,
            recipes=recipes,
            out=self.out,
            data=self.data,
            network=self.network,
            checkpoints=checkpoints,
            picture=self.png,
            records=records,
        )
        show_session(session, self.json, self.tensorboard)


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replaces the parameter `run: RunOptions` of a command by its fields, each an option of its own."""
    own = inspect.signature(command, eval_str=True).parameters
    hints = get_type_hints(RunOptions, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [
        inspect.Parameter(field.name, keyword, default=field.default, annotation=hints[field.name])
        for field in fields(RunOptions)
    ]
    parameters = [
        parameter
        for name, given in own.items()
        for parameter in (shared if name == "run" else [given.replace(kind=keyword)])
    ]

    @wraps(command)
    def flat(**values: Any) -> None:
        run = RunOptions(**{parameter.name: values.pop(parameter.name) for parameter in shared})
        command(run=run, **values)

    flat.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    flat.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return flat


def show_session(session: TrainingSession, as_json: bool, tensorboard: Path | None = None) -> None:
    """Run a session with live progress and show what came out; with JSON, progress goes to standard error."""
    from rich.console import Console

    from thinwire_lab.run.progress import Live, logged

    with Live(Console(stderr=as_json), len(session.recipes)) as live, logged(live, tensorboard) as progress:
        record, folder = replace(session, command=command_line()).run(progress)
    show_record(record, folder, as_json)


def show_record(record: Record, folder: Path, as_json: bool) -> None:
    """The table of a record, what it says in one sentence, and where its report is."""
    from rich.console import Console
    from rich.markup import escape

    from thinwire_lab.report.record import REPORT
    from thinwire_lab.report.run_report import verdict
    from thinwire_lab.report.summary import compare_outcomes, headline, title_of

    lines = compare_outcomes(record.outcomes)
    if as_json:
        print_json_rows({**line.to_dict(), "folder": str(folder)} for line in lines)
        return
    print_table(*headline(lines), title=title_of(record), title_style="bold")
    console = Console()
    if sentence := verdict(lines, slowed=bool(record.origin.recipe["rate"])):
        console.print(escape(sentence), highlight=False)
    for outcome in record.outcomes:
        if decided := (outcome.report or {}).get("auto"):
            console.print(escape(f"seed {outcome.seed}: {decided}"), highlight=False)
    console.print(f"report: {escape(str(folder / REPORT))}", highlight=False, soft_wrap=True)


def command_line() -> str:
    """The command as the user typed it."""
    return shlex.join(["thinwire", *sys.argv[1:]])


@with_run_options
def train(
    task: TaskName,
    *,
    codec: Annotated[
        str,
        typer.Option(
            help='How gradients travel: auto, terngrad, topk:0.01, ddp, ...; options: "@ feedback=none".'
        ),
    ] = "auto",
    run: RunOptions,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to save the run in, at its end and as below.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Save every so many steps.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on from this checkpoint.")] = None,
    stop_at: Annotated[int | None, typer.Option(help="Stop after this step, as if interrupted.")] = None,
) -> None:
    """Train one model on one task with N workers; the result is a table, a run folder and an HTML report.

    \b
    Examples:
      thinwire train digits
      thinwire train digits --codec terngrad --workers 4 --rate 100mbit
      thinwire train mnist --codec ddp --data DIR
      thinwire train mnist --checkpoint run.pt --checkpoint-every 200
      thinwire train mnist --checkpoint run.pt --resume run.pt
    """
    recipe = run.recipe(task, (codec,))
    from thinwire_lab.run.checkpoint import CheckpointOptions

    checkpoints = CheckpointOptions(checkpoint, checkpoint_every, resume, stop_at)
    run.show(f"{codec} on {task}", f"train-{task}", (replace(recipe, codec=codec),), checkpoints)


@with_run_options
def compare(
    task: TaskName,
    *,
    codecs: Annotated[
        str, typer.Option(help="Codecs, the first is the baseline; separated by commas.")
    ] = "ddp,auto",
    seeds: Annotated[int, typer.Option(help="Runs of every codec, each with a seed of its own.")] = 1,
    records: Annotated[
        Path | None,
        typer.Option(
            help="File with a line for every finished run; runs that are in it are not repeated. Default: "
            "records.jsonl in the run folder."
        ),
    ] = None,
    run: RunOptions,
) -> None:
    """Train with each codec and each seed, interleaved, and compare accuracy, bytes and time.

    More options go behind @: memory, route, control, bucket (MB). Too large a theta ruins a run; the guard,
    which compares with the losses of the first codec, repairs it (the last example).

    \b
    Examples:
      thinwire compare digits
      thinwire compare mnist --codecs ddp,terngrad --seeds 3 --workers 4 --data DIR
      thinwire compare cifar10 --model alexnet --steps 300 --rate 100mbit --codecs ddp,ddp-fp16,terngrad
      thinwire compare digits --seeds 3 --json
      thinwire compare digits --tensorboard curves
      thinwire compare digits --seeds 3 --records study.jsonl
      thinwire compare digits --png --seeds 3 \\
        --codecs "ddp,fft:0.9995 @ feedback=none,fft:0.9995 @ feedback=none schedule=guard"
    """
    names = split_codecs(codecs)
    recipe = run.recipe(task, names)
    from thinwire_lab.run.session import grid

    title = f"{' against '.join(names)} on {task}"
    run.show(title, f"compare-{task}", grid(recipe, names, seeds), records=records)


def demo(
    out: Out = Path("runs"), network: NetworkName = AUTO, json: Json = False, png: Picture = False
) -> None:
    """Train a small CNN on digits with 4 workers over slow links: first plain DDP, then TernGrad.

    It takes about a minute on two cores and downloads nothing. As root the links are real ones between
    network namespaces, shaped by the kernel; otherwise thinwire emulates them. The codec is named, since auto
    would spend a good part of so short a run on its trials.

    \b
    Examples:
      thinwire demo
      thinwire demo --network emulated --png
    """
    from thinwire_lab.run.recipe import demo as recipe
    from thinwire_lab.run.session import grid

    run = RunOptions(out=out, network=network, json=json, png=png)
    recipes = grid(recipe(), ("ddp", "terngrad"), num_seeds=1)
    run.show("Plain DDP against TernGrad over a slow link", "demo", recipes)


def report(
    folders: Annotated[list[Path], typer.Argument(help="Folders that train, compare or demo wrote.")],
    json: Json = False,
    png: Picture = False,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder for the page; default: the run folder, or the parent folder of several."),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(help="Also write this SVG: bytes and score of each codec, for a README.")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Let the SVG show the time of a step on such a link, e.g. 100mbit.")
    ] = None,
) -> None:
    """Make report.html from the rows and the summaries in run folders, and print its table.

    Several folders are put on one page if they are about one task. The page needs no network: accuracy and
    loss against steps, bytes and time at a link speed to be chosen, stages, layers, gradients.

    \b
    Examples:
      thinwire report runs/demo-20250101-120000
      thinwire report runs/compare-mnist-* --out pages
      thinwire report runs/compare-mnist-20250101-120000 --picture gain.svg --rate 100mbit
    """
    from thinwire.texts import rate_or_none
    from thinwire_lab.cli.runs import show_record
    from thinwire_lab.report.pictures import write_headline_picture
    from thinwire_lab.report.record import open_folder, read_record
    from thinwire_lab.report.run_report import write_report
    from thinwire_lab.report.summary import merge

    rate = rate_or_none(rate)
    records = {name: read_record(folder) for name, folder in _named(folders).items()}
    record = next(iter(records.values())) if len(records) == 1 else merge(records)
    place = open_folder(out or (folders[0] if len(folders) == 1 else folders[0].parent))
    write_report(record, place, png)
    if picture is not None:
        write_headline_picture(record, picture, rate)
    show_record(record, place, json)


def _named(folders: list[Path]) -> dict[str, Path]:
    """Folders by their last names, or by their paths where two have the same."""
    short = {folder.absolute().name: folder for folder in folders}
    return short if len(short) == len(folders) else {str(folder): folder for folder in folders}

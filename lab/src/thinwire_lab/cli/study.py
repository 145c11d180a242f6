"""thinwire study: what compression does to gradients recorded from real training."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thinwire.errors import LabError
from thinwire_lab.cli.bars import ProgressBar
from thinwire_lab.cli.options import Data, Json, Out, Picture, Seed, print_json_rows, print_table

if TYPE_CHECKING:
    from rich.console import Console

    from thinwire_lab.study.errors import GradientErrors

study = typer.Typer(
    help="Record gradients from training and measure what methods and number formats do to them.",
    no_args_is_help=True,
)

Tasks = Annotated[str, typer.Option(help="Tasks, separated by commas; a model may follow: cifar10:cifarnet.")]
Steps = Annotated[int, typer.Option(help="Steps of every training run.", min=1)]
ALL_TASKS = "mnist,cifar10,cifar10:cifarnet,shakespeare"


@study.command()
def errors(
    tasks: Tasks = ALL_TASKS,
    steps: Steps = 200,
    methods: Annotated[str, typer.Option(help="Names separated by commas, or all.")] = "all",
    bits: Annotated[
        str, typer.Option(help="Bits per element to compare at, separated by commas.")
    ] = "1.6,2,4",
    seed: Seed = 0,
    data: Data = None,
    out: Out = Path("runs"),
    json: Json = False,
    png: Picture = False,
) -> None:
    """Compare the errors of fft, dct, topk, terngrad, qsgd and gradiveq at equal bits.

    Every task is trained in this process by its recipe; its gradient is looked at after
    5 %, 50 % and 95 % of the steps. Says for each task whether FFT errs less than the others.

    \b
    Examples:
      thinwire study errors --tasks digits --steps 100
      thinwire study errors --data DIR --png
      thinwire study errors --tasks mnist --methods fft,topk,qsgd --bits 1,2,3,4 --json
    """
    from thinwire_lab.cli.runs import command_line
    from thinwire_lab.study.methods import read_methods
    from thinwire_lab.study.report import GradientStudy
    from thinwire_lab.study.subject import read_subjects

    plan = GradientStudy(read_subjects(tasks, steps, seed), out, data, png, command_line())
    chosen, targets = read_methods(methods), _targets(bits)
    with ProgressBar(json) as bar:
        findings, folder = plan.errors(chosen, targets, bar.tell)
    if json:
        print_json_rows([row for finding in findings for row in finding.rows()])
        return
    _print_errors(findings, folder)


@study.command()
def formats(
    tasks: Tasks = ALL_TASKS,
    steps: Steps = 200,
    seed: Seed = 0,
    data: Data = None,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Compare range floats with fp8, fp16, bf16 and uniform steps at 8, 10 and 16 bits.

    \b
    Examples:
      thinwire study formats --tasks digits --steps 100
      thinwire study formats --tasks mnist,shakespeare --data DIR --json
    """
    from rich.markup import escape

    from thinwire_lab.cli.runs import command_line
    from thinwire_lab.study.findings import format_table
    from thinwire_lab.study.report import GradientStudy
    from thinwire_lab.study.subject import read_subjects

    plan = GradientStudy(read_subjects(tasks, steps, seed), out, data, command=command_line())
    with ProgressBar(json) as bar:
        found, folder = plan.formats(bar.tell)
    if json:
        print_json_rows([error.row() for error in found])
        return
    for subject in dict.fromkeys(error.subject for error in found):
        own = [error for error in found if error.subject == subject]
        print_table(*format_table(own), subject, narrow=True)
    _console().print(f"report: {escape(str(folder))}", highlight=False, soft_wrap=True)


@study.command()
def accuracy(
    records: Annotated[list[Path], typer.Argument(help="Files that `thinwire compare --records` wrote.")],
    picture: Annotated[
        Path | None, typer.Option(help="Also write this SVG: differences against bytes, of the first study.")
    ] = None,
    into: Annotated[
        Path | None,
        typer.Option(help="Also put each table into this page, between <!-- accuracy: FILE --> marks."),
    ] = None,
    baseline: Annotated[
        Path | None, typer.Option(help="Records whose runs of ddp are the baseline of studies without one.")
    ] = None,
    json: Json = False,
) -> None:
    """Tell which codecs retain the accuracy of DDP in recorded runs: differences seed by seed, and bytes.

    Accuracy is retained if a codec loses on average no more than half a point, or 0.02 nats a character,
    over at least 3 seeds.

    \b
    Examples:
      thinwire study accuracy docs/records/accuracy-cifar10.jsonl
      thinwire study accuracy docs/records/accuracy-*.jsonl --json
      thinwire study accuracy local.jsonl --baseline docs/records/accuracy-shakespeare-long.jsonl
      thinwire study accuracy docs/records/accuracy-cifar10.jsonl --picture docs/figures/accuracy-cifar10.svg
    """
    from thinwire_lab.report.record import write_text
    from thinwire_lab.run.records import RunRecords
    from thinwire_lab.study.accuracy import (
        HEADS,
        AccuracyPicture,
        accuracy_markdown,
        accuracy_rows,
        accuracy_studies,
        put_table,
        with_baseline,
    )

    plain = [] if baseline is None else RunRecords(baseline).checked().runs()
    found = {
        path: accuracy_studies(with_baseline(RunRecords(path).checked().runs(), plain)) for path in records
    }
    for path, studies in found.items():
        for one in studies:
            if json:
                print_json_rows({"task": one.recipe.task, **line.to_dict()} for line in one.codecs)
            else:
                print_table(HEADS, accuracy_rows(one), one.setting, narrow=True)
        if into is not None:
            page = into.read_text(encoding="utf-8")
            write_text(into, put_table(page, path.stem, "\n".join(map(accuracy_markdown, studies))))
    if picture is not None:
        write_text(picture, AccuracyPicture(next(iter(found.values()))[0]).svg())


def _print_errors(findings: Sequence[GradientErrors], folder: Path) -> None:
    from rich.markup import escape

    from thinwire_lab.study.figures import subjects_of
    from thinwire_lab.study.findings import correlation_table, error_table, missed_note, verdict
    from thinwire_lab.study.report import WHY_NOTE, tensors_note

    console = _console()
    for subject in subjects_of(findings):
        own = [finding for finding in findings if finding.subject == subject]
        print_table(
            *error_table(own), f"{subject}: relative error by moment and bits per element", narrow=True
        )
        notes = [missed_note(own), verdict(own), tensors_note(own[0])]
        console.print(escape("\n".join(filter(None, notes))) + "\n", highlight=False)
    print_table(*correlation_table(findings), "What explains it", narrow=True)
    console.print(escape(WHY_NOTE), highlight=False)
    console.print(f"report: {escape(str(folder))}", highlight=False, soft_wrap=True)


def _targets(text: str) -> list[float]:
    try:
        targets = [float(word) for word in text.split(",") if word.strip()]
    except ValueError:
        targets = []
    if not targets or not all(0 < target <= 32 for target in targets):
        raise LabError(f'--bits "{text}" must be numbers above 0 and at most 32, such as 1.6,2,4')
    return list(dict.fromkeys(targets))


def _console() -> Console:
    from rich.console import Console

    return Console()

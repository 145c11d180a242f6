"""Options that several commands share, and the recipe that follows from them."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from thinwire.lab.asked import read_asked
from thinwire.lab.recipe import Recipe
from thinwire.rate import rate_or_none

TaskName = Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist, cifar10 or shakespeare.")]
Model = Annotated[str | None, typer.Option(help="Model; default: the one of the task's recipe.")]
Workers = Annotated[int, typer.Option(help="Worker processes.")]
Rate = Annotated[
    str | None, typer.Option(help="Rate of every worker's link, e.g. 100mbit; default, or none: no limit.")
]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data; default: the task's recipe.")]
Steps = Annotated[int | None, typer.Option(help="Steps, instead of epochs.")]
Batch = Annotated[int | None, typer.Option(help="Examples per worker and step.")]
LearningRate = Annotated[float | None, typer.Option("--lr", help="Learning rate at its highest.")]
Evaluations = Annotated[int | None, typer.Option(help="How often the model is scored; default: 10.")]
Seed = Annotated[int, typer.Option(help="Seed of weights, data order and codec.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder of data sets; default: a cache folder, filled by download.")
]
Out = Annotated[Path, typer.Option(help="Where the run folder is made.")]
NetworkName = Annotated[str, typer.Option(help="auto, netlab (root), emulated or loopback.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON rows instead of a table.")]
Picture = Annotated[bool, typer.Option("--png", help="Also write report.png.")]


def adapted(recipe: Recipe, codecs: Sequence[str], **wishes: Any) -> Recipe:
    """The task's recipe with what the user asked for on the command line; None: as the recipe has it.

    Names that do not exist and rates that are none are refused here, before anything slow is imported.
    """
    for codec in codecs:
        read_asked(codec).check_names()
    wishes["rate"] = rate_or_none(wishes.get("rate"))
    return replace(recipe, **{name: value for name, value in wishes.items() if value is not None})


def split_codecs(text: str) -> tuple[str, ...]:
    """Codecs separated by commas; "option=value" after a comma belongs to the codec before it.

    Double quotes around a codec are taken off.

    >>> split_codecs('ddp, gradiveq:4,slice=64 >> qsgd:8,"topk:0.01,chunk=64"')
    ('ddp', 'gradiveq:4,slice=64 >> qsgd:8', 'topk:0.01,chunk=64')
    """
    names: list[str] = []
    for piece in next(csv.reader([text], skipinitialspace=True), []):
        if names and re.match(r"\s*\w+\s*=", piece):
            names[-1] += f",{piece.strip()}"
        else:
            names.append(piece.strip())
    return tuple(name for name in names if name)

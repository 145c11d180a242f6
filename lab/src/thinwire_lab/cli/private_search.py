"""`thinwire private search` and `thinwire private pareto`: bit widths that fit a budget of bytes."""

from __future__ import annotations

import json as json_
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.errors import LabError
from thinwire_lab.cli.options import Data, Json, Seed
from thinwire_lab.cli.private_train import Epochs, FloatEpochs, Net, Task, progress
from thinwire_private.cli.show import parse_bytes, print_row, print_table

if TYPE_CHECKING:
    from thinwire_private.net.graph import Graph


Weights = Annotated[str, typer.Option(help="Weight bits to choose from, separated by commas.")]
Activations = Annotated[str, typer.Option(help="Activation bits to choose from.")]
Measure = Annotated[str, typer.Option("--sensitivity", help="fisher, full-fisher or hutchinson.")]
Searched = Annotated[str | None, typer.Option(help="Rivals that get a search of equal bytes; default: all.")]
OneFloat = Annotated[bool, typer.Option(help="All seeds tune the floating-point network of seed 0.")]
WidthsFile = Annotated[Path | None, typer.Option(help="File for the widths, to be given to train --bits.")]


def search(
    task: Task = "digits",
    budget: Annotated[str, typer.Option(help="Bytes per private picture, e.g. 20MB.")] = "2MB",
    net: Net = None,
    base: Annotated[str, typer.Option(help="Widths of what is not searched.")] = "W4A6",
    weights: Weights = "2,3,4,5,6,8",
    activations: Activations = "3,4,5,6,8",
    sensitivity: Measure = "full-fisher",
    out: WidthsFile = None,
    start: Annotated[Path | None, typer.Option(help="Floating-point weights (train --keep-float).")] = None,
    float_epochs: FloatEpochs = None,
    seed: Seed = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Find bit widths per layer: least sensitivity within a budget of bytes, by an integer programme.

    \b
    Examples:
      thinwire private search digits --budget 1.5MB --out widths.json
      thinwire private train digits --bits widths.json
      thinwire private search cifar10 --net resnet8w --budget 60MB --start float.pt --data DIR
    """
    from thinwire_lab.private.study import SENSED, float_schedule, plan_for, space_for
    from thinwire_private.net.widths import bits_to_facts
    from thinwire_private.train.run import drafted, pretrain
    from thinwire_private.train.search import picture_bytes
    from thinwire_private.train.search import search as solve
    from thinwire_private.train.sensitivity import measure

    allowed, measured = parse_bytes(budget), measure(sensitivity)
    with progress(json) as tell:
        plan = plan_for(task, net, data)
        space = space_for(plan, base, parse_widths(weights), parse_widths(activations))
        ready, _ = pretrain(plan, space.base, float_schedule(task, float_epochs), seed, start, None, tell)
    omega = measured(ready, plan.pictures.x[:SENSED], plan.pictures.y[:SENSED], space.asked)
    drawn = partial(drafted, ready, plan.draw, plan.pictures)
    found = solve(space, omega, picture_bytes, allowed, drawn)
    facts = {"net": plan.name, "task": task, "bytes": found.num_bytes, "bits": bits_to_facts(found.bits)}
    if out is not None:
        out.write_text(json_.dumps(facts, indent=1) + "\n")
    if json:
        print_row({"row": "widths", **facts, "omega": found.omega})
        return
    _show_widths(f"{plan.name} within {budget}", drawn(found.bits))
    typer.echo(f"{found.num_bytes / 1e6:.2f} MB per picture" + (f", widths: {out}" if out else ""))


def _show_widths(title: str, graph: Graph) -> None:
    rows = [
        [layer.name, str(layer.weight_bits), str(layer.in_bits), str(layer.acc_bits), f"{layer.macs:,}"]
        for layer in graph.layers
    ]
    print_table(title, ["layer", "weights", "activations", "sums", "MAC"], rows)


def pareto(
    task: Task = "digits",
    net: Net = None,
    rivals: Annotated[str, typer.Option(help="Uniform widths, separated by commas.")] = "W2A3,W3A4,W4A6,W8A8",
    searched: Searched = None,
    seeds: Annotated[str, typer.Option(help="A run of each kind for each of these seeds.")] = "0,1,2",
    epochs: Epochs = None,
    float_epochs: FloatEpochs = None,
    one_float: OneFloat = False,
    weights: Weights = "2,3,4,5,6,8",
    activations: Activations = "2,3,4,5,6,8",
    sensitivity: Measure = "full-fisher",
    work: Annotated[Path, typer.Option(help="Where floating-point weights are kept.")] = Path("runs/private"),
    models: Annotated[Path | None, typer.Option(help="Where model files of new runs go.")] = None,
    docs: Annotated[Path, typer.Option(help="Where the picture goes.")] = Path("docs/figures"),
    recorded: Annotated[bool, typer.Option(help="Only draw what is recorded, run nothing.")] = False,
    data: Data = None,
    json: Json = False,
) -> None:
    """Accuracy against bytes: uniform widths, and what the search finds for the same bytes.

    Finished runs are lines of docs/records/private-accuracy.jsonl and are not run again.

    \b
    Examples:
      thinwire private pareto digits
      thinwire private pareto cifar10 --rivals W3A4,W8A8 --searched W3A4 --one-float --data DIR
      thinwire private pareto cifar10 --epochs 1 --recorded
    """
    from thinwire_lab.private.study import (
        DEFAULTS,
        RECORDS,
        AccuracyStudy,
        float_schedule,
        grid_schedule,
        plan_for,
        same_training,
    )

    length, float_length = grid_schedule(task, epochs).epochs, float_schedule(task, float_epochs).epochs
    if recorded:
        known = [{**line["settings"], **line["result"]} for line in RECORDS.read()]
        rows = same_training(known, length, float_length, sensitivity)
    else:
        runs = _words(rivals), parse_seeds(seeds), work, float_length, length, one_float
        widths = parse_widths(weights), parse_widths(activations)
        beside = None if searched is None else _words(searched)
        with progress(json) as tell:
            study = AccuracyStudy(
                plan_for(task, net, data), *runs, *widths, sensitivity, beside, models, tell=tell
            )
            rows = list(study.run(print_row if json else lambda _: None))
    _show_pareto(rows, task, net or DEFAULTS.get(task, ""), docs / f"private-pareto-{task}.svg", json)


def _show_pareto(rows: list[dict[str, Any]], task: str, name: str, path: Path, json: bool) -> None:
    from thinwire_lab.private.study import (
        pareto_picture,
        pareto_points,
        pareto_table,
        pareto_verdict,
        with_current_bytes,
    )

    found = pareto_points([with_current_bytes(row) for row in rows], task, name)
    pareto_picture(found, f"{name} on {task}: accuracy against private bytes", path)
    if json:
        print_row({"row": "verdict", "verdict": pareto_verdict(found), "picture": str(path)})
        return
    print_table(f"{name} on {task}", *pareto_table(found))
    typer.echo(f"{pareto_verdict(found)}\npicture: {path}")


def parse_widths(text: str) -> tuple[int, ...]:
    """Widths of a text such as 2,3,4."""
    words = _words(text)
    if not words or not all(word.isdigit() and 1 <= int(word) <= 24 for word in words):
        raise LabError(f'"{text}" are not bit widths: write whole numbers from 1 to 24, like 2,3,4')
    return tuple(sorted({int(word) for word in words}))


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of a text such as 0,1,2."""
    words = _words(text)
    if not words or not all(word.isdigit() for word in words):
        raise LabError(f'"{text}" are not seeds: write whole numbers, like 0,1,2')
    return tuple(dict.fromkeys(int(word) for word in words))


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())

"""`thinwire private train`: quantization-aware training of a network to a .twq model file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire_lab.cli.options import Data, Json, Seed
from thinwire_private.cli.show import print_row, print_table

if TYPE_CHECKING:
    from thinwire_private.train.run import Tell

Task = Annotated[str, typer.Argument(help="digits, mnist, fashion-mnist or cifar10.")]
Net = Annotated[
    str | None,
    typer.Option(help="A network of the zoo, or your own: module:function that returns a torch module."),
]
Epochs = Annotated[float | None, typer.Option(help="Passes over the data on the integer grid.")]
FloatEpochs = Annotated[float | None, typer.Option(help="Passes over the data in floating point before it.")]
Progressive = Annotated[
    bool, typer.Option(help="Weights below 4 bits start from a network trained at 4 bits.")
]
SHOWN = (("float_accuracy", 2), ("accuracy", 2), ("clipped", 3))  # in percent, with so many digits


def train(
    task: Task = "digits",
    net: Net = None,
    bits: Annotated[
        str, typer.Option(help="W8A8, W4A6, W3A6R8 (shortcuts in 8 bits), or a file of `search --out`.")
    ] = "W8A8",
    out: Annotated[Path, typer.Option(help="The model file to write.")] = Path("model.twq"),
    epochs: Epochs = None,
    float_epochs: FloatEpochs = None,
    acc: Annotated[
        str,
        typer.Option(help="Accumulators: worst (tells nothing) or weights (narrower; leaks weight norms)."),
    ] = "worst",
    progressive: Progressive = True,
    start: Annotated[Path | None, typer.Option(help="Floating-point weights to start from.")] = None,
    keep_float: Annotated[Path | None, typer.Option(help="Where to keep the floating-point weights.")] = None,
    seed: Seed = 0,
    data: Data = None,
    json: Json = False,
) -> None:
    """Train a network for private inference: floating point, then the integer grid, then a checked export.

    \b
    Examples:
      thinwire private train digits --bits W8A8 --out digits.twq
      thinwire private train cifar10 --net resnet8w --bits W4A6 --data DIR --out resnet8w.twq
      thinwire private train mnist --net mymodel:build --bits W4A4 --data DIR
    """
    from thinwire_lab.cli.runs import command_line
    from thinwire_lab.private.study import float_schedule, grid_schedule, plan_for
    from thinwire_private.net.twq import QuantizedModel, write_twq
    from thinwire_private.net.widths import bits_to_facts, open_bits
    from thinwire_private.train.run import pretrain, tune

    widths = open_bits(bits)
    with progress(json) as tell:
        plan = plan_for(task, net, data)
        schedule = float_schedule(task, float_epochs)
        ready, float_accuracy = pretrain(plan, widths, schedule, seed, start, keep_float, tell)
        options: dict[str, Any] = {
            "progressive": progressive,
            "acc_rule": acc,
            "float_accuracy": float_accuracy,
            "tell": tell,
        }
        schedule = grid_schedule(task, epochs)
        result = tune(ready, plan.draw, widths, plan.pictures, schedule, seed, **options)
    facts = {"net": plan.name, "task": task, "seed": seed, "bits": bits_to_facts(widths), **result.row()}
    write_twq(out, QuantizedModel(result.graph, {**facts, "command": command_line()}))
    row = {"row": "model", "file": str(out), "macs": result.graph.macs, "relus": result.graph.relus, **facts}
    print_row(row) if json else _show(row)


def _show(row: dict[str, Any]) -> None:
    shares = [f"{100 * row[name]:.{digits}f}" for name, digits in SHOWN]
    cells = [*shares, f"{row['macs']:,}", f"{row['relus']:,}", str(row["seconds"])]
    heads = ("float %", "integers %", "clipped %", "MAC", "ReLUs", "seconds")
    print_table(f"{row['net']} on {row['task']}", heads, [cells])
    typer.echo(f"model: {row['file']} (integers checked against torch, picture by picture)")


@contextmanager
def progress(quiet: bool) -> Iterator[Tell]:
    """A bar per stage on standard error: step and loss."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.completed:>4.0f}/{task.total:.0f}"),
        TextColumn("{task.fields[news]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as bars:
        known: dict[str, TaskID] = {}

        def tell(stage: str, step: int, steps: int, loss: float) -> None:
            if stage not in known:
                known[stage] = bars.add_task(stage, total=steps, news="")
            bars.update(known[stage], completed=step, news=f"loss {loss:.3f}")

        yield tell

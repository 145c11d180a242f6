"""`thinwire train`: one training run of a lab task, compressed or not, on a fast or a slow link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from thinwire_lab.cli.options import TaskName
from thinwire_lab.cli.run_options import RunOptions, with_run_options


@with_run_options
def train(
    task: TaskName,
    *,
    codec: Annotated[
        str,
        typer.Option(
            help='How gradients travel: auto, terngrad, topk:0.01, ddp, ...; options: "@ memory=none".'
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
    from thinwire_lab.run.checkpoint_options import CheckpointOptions

    checkpoints = CheckpointOptions(checkpoint, checkpoint_every, resume, stop_at)
    run.show(f"{codec} on {task}", f"train-{task}", (replace(recipe, codec=codec),), checkpoints)

"""`thinwire train`: one training run of a lab task, compressed or not, on a fast or a slow link."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from thinwire.cli.options import (
    Batch,
    Data,
    Epochs,
    Evaluations,
    Json,
    LearningRate,
    Model,
    NetworkName,
    Out,
    Picture,
    Rate,
    Seed,
    Steps,
    TaskName,
    Workers,
    adapted,
)
from thinwire.lab.network import AUTO
from thinwire.lab.recipe import recipe_for


def train(
    task: TaskName,
    codec: Annotated[
        str,
        typer.Option(
            help='How gradients travel: terngrad, topk:0.01, ..., ddp, ddp-fp16; options: "@ memory=none".'
        ),
    ] = "terngrad",
    workers: Workers = 4,
    rate: Rate = None,
    model: Model = None,
    epochs: Epochs = None,
    steps: Steps = None,
    batch: Batch = None,
    lr: LearningRate = None,
    evaluations: Evaluations = None,
    seed: Seed = 0,
    data: Data = None,
    out: Out = Path("runs"),
    network: NetworkName = AUTO,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File to save the run in, at its end and as below.")
    ] = None,
    checkpoint_every: Annotated[int | None, typer.Option(help="Save every so many steps.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Go on from this checkpoint.")] = None,
    stop_at: Annotated[int | None, typer.Option(help="Stop after this step, as if interrupted.")] = None,
    json: Json = False,
    png: Picture = False,
) -> None:
    """Train one model on one task with N workers; the result is a table, a run folder and an HTML report.

    \b
    thinwire train digits
    thinwire train digits --codec terngrad --workers 4 --rate 100mbit
    thinwire train mnist --codec ddp --data DIR
    thinwire train mnist --checkpoint run.pt --checkpoint-every 200
    thinwire train mnist --checkpoint run.pt --resume run.pt
    """
    recipe = adapted(
        recipe_for(task),
        (codec,),
        model=model,
        workers=workers,
        rate=rate,
        epochs=epochs,
        steps=steps,
        batch=batch,
        lr=lr,
        evaluations=evaluations,
        seed=seed,
    )
    from thinwire.cli.session import show_session
    from thinwire.lab.launch import Stops
    from thinwire.lab.session import Session

    stops = Stops(checkpoint, checkpoint_every, resume, stop_at)
    session = Session(
        title=f"{codec} on {task}",
        name=f"train-{task}",
        recipes=(replace(recipe, codec=codec),),
        out=out,
        data=data,
        network=network,
        stops=stops,
        picture=png,
    )
    show_session(session, json)

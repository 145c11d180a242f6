"""`thinwire compare`: the same training with several codecs and seeds, side by side."""

from __future__ import annotations

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
    split_codecs,
)
from thinwire.lab.network import AUTO
from thinwire.lab.recipe import recipe_for


def compare(
    task: TaskName,
    codecs: Annotated[
        str, typer.Option(help="Codecs, the first is the baseline; separated by commas.")
    ] = "ddp,terngrad",
    seeds: Annotated[int, typer.Option(help="Runs of every codec, each with a seed of its own.")] = 1,
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
    json: Json = False,
    png: Picture = False,
) -> None:
    """Train with each codec and each seed, interleaved, and compare accuracy, bytes and time.

    \b
    thinwire compare digits
    thinwire compare mnist --codecs ddp,terngrad --seeds 3 --workers 4 --data DIR
    thinwire compare cifar10 --model alexnet --steps 300 --rate 100mbit --codecs ddp,ddp-fp16,terngrad
    thinwire compare digits --seeds 3 --json

    More options go behind @: memory, route, control, bucket (MB). Too large a theta ruins a run; the guard,
    which is told the losses of the codec named first, heals it:

    \b
    thinwire compare digits --png --seeds 3 \\
      --codecs "ddp,fft:0.9995 @ memory=none,fft:0.9995 @ memory=none control=guard"
    """
    names = split_codecs(codecs)
    recipe = adapted(
        recipe_for(task),
        names,
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
    from thinwire.lab.session import Session, grid

    session = Session(
        title=f"{' against '.join(names)} on {task}",
        name=f"compare-{task}",
        recipes=grid(recipe, names, seeds),
        out=out,
        data=data,
        network=network,
        picture=png,
    )
    show_session(session, json)

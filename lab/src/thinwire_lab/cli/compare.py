"""`thinwire compare`: the same training with several codecs and seeds, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thinwire_lab.cli.options import TaskName, split_codecs
from thinwire_lab.cli.run_options import RunOptions, with_run_options


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
            help="File with a line for every finished run; what it has already is not run again. Default: "
            "records.jsonl in the run folder."
        ),
    ] = None,
    run: RunOptions,
) -> None:
    """Train with each codec and each seed, interleaved, and compare accuracy, bytes and time.

    More options go behind @: memory, route, control, bucket (MB). Too large a theta ruins a run; the guard,
    which is told the losses of the codec named first, heals it (the last example).

    \b
    Examples:
      thinwire compare digits
      thinwire compare mnist --codecs ddp,terngrad --seeds 3 --workers 4 --data DIR
      thinwire compare cifar10 --model alexnet --steps 300 --rate 100mbit --codecs ddp,ddp-fp16,terngrad
      thinwire compare digits --seeds 3 --json
      thinwire compare digits --tensorboard curves
      thinwire compare digits --seeds 3 --records study.jsonl
      thinwire compare digits --png --seeds 3 \\
        --codecs "ddp,fft:0.9995 @ memory=none,fft:0.9995 @ memory=none control=guard"
    """
    names = split_codecs(codecs)
    recipe = run.recipe(task, names)
    from thinwire_lab.run.session import grid

    title = f"{' against '.join(names)} on {task}"
    run.show(title, f"compare-{task}", grid(recipe, names, seeds), records=records)

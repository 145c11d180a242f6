"""`thinwire picture`: the picture that the README opens with, drawn from recorded runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thinwire_lab.cli.options import split_codecs


def picture(
    out: Annotated[Path, typer.Argument(help="The SVG to write.")],
    accuracy: Annotated[Path, typer.Option(help="Lines that compare --records wrote.")],
    speed: Annotated[Path, typer.Option(help="Lines that bench grid wrote.")] = Path(
        "docs/records/grid.jsonl"
    ),
    model: Annotated[str, typer.Option(help="Model of the grid.")] = "alexnet",
    workers: Annotated[int, typer.Option(help="Workers of the grid.")] = 4,
    rates: Annotated[
        str, typer.Option(help="One or two links of the grid, the first is that of the bars.")
    ] = "100mbit,1gbit",
    hooks: Annotated[str, typer.Option(help="Codecs of the grid, and auto.")] = (
        "ddp,fp16,qsgd:4,terngrad,topk:0.01,auto"
    ),
    codecs: Annotated[
        str | None, typer.Option(help="Codecs of the comparison; default: all that were recorded.")
    ] = None,
) -> None:
    """Draw what a user gains (measured step times) and what it costs (accuracy) as one small SVG.

    Runs nothing: times are from the grid's records, scores from those of a comparison, of which only runs
    of one recipe are taken, that of the last. It is light or dark as its reader's system is.

    \b
    Examples:
      thinwire compare mnist --codecs ddp,terngrad,topk:0.01 --seeds 2 --records docs/records/mnist.jsonl
      thinwire picture docs/figures/gain.svg --accuracy docs/records/mnist.jsonl
      thinwire picture gain.svg --accuracy study.jsonl --rates 1gbit --codecs ddp,terngrad --workers 8
    """
    from thinwire.errors import LabError
    from thinwire_lab.bench.grid import read_records
    from thinwire_lab.run.records import Records
    from thinwire_lab.study.gain import gains_of
    from thinwire_lab.study.kept import kept_studies
    from thinwire_lab.study.opening_picture import write_opening_picture

    if not speed.is_file():
        raise LabError(f"{speed} does not exist: name a file that thinwire bench grid wrote")
    links = split_codecs(rates)
    if not 1 <= len(links) <= 2:
        raise LabError(f"rates={rates} must be one link or two, as in 100mbit,1gbit")
    gains = gains_of(read_records(speed), model, workers, links, split_codecs(hooks))
    costs = kept_studies(Records(accuracy).checked().runs())[-1].only(split_codecs(codecs or ""))
    setting = f"{model}, {workers} workers, measured"
    write_opening_picture(out, gains, links, setting, costs)
    typer.echo(f"wrote {out}")

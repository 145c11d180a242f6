"""`thinwire figure5` judges the performance model by TernGrad's Figure 5; `thinwire picture` draws gains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.cli.table import split_codecs
from thinwire_lab.cli.options import print_table

if TYPE_CHECKING:
    from thinwire_lab.figure5.forecasts import CodecCurve
    from thinwire_lab.figure5.model import Table


def figure5(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures.")] = Path(),
    ours: Annotated[
        bool, typer.Option("--ours/--no-ours", help="Also our own formats, up to 10,000 workers.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON row per cell and table, then one per codec; no pictures.")
    ] = False,
) -> None:
    """Regenerate TernGrad's Figure 5 and compare it with the paper's values.

    Parameters are fitted on the cells of up to 16 GPUs; the others are predicted. A second table has its
    latency from one cell of 512 GPUs, which then does not count.

    \b
    Examples:
      thinwire figure5 --out docs/figures
      thinwire figure5 --no-ours --json > cells.jsonl
    """
    from thinwire_lab.figure5.forecasts import curves
    from thinwire_lab.figure5.model import judge

    assumed, fitted = judge(), judge(with_latency=True)
    drawn = curves(fitted.clusters) if ours else []
    if as_json:
        for row in [*_cells(assumed, "assumed"), *_cells(fitted, "fitted"), *_codecs(drawn)]:
            typer.echo(json.dumps(row))
        return
    _print(assumed, fitted, drawn)
    _draw(assumed, drawn, out)


def _print(assumed: Table, fitted: Table, drawn: list[CodecCurve]) -> None:
    from thinwire_lab.figure5 import forecasts as tables

    for title, table in (
        ("Latency assumed", assumed),
        ("Latency fitted on one cell of 512 GPUs of each cluster", fitted),
    ):
        typer.echo(f"{title}: error of the model in percent, by GPUs; (fitted), <seen>")
        print_table(*tables.errors(table), "", narrow=True)
        typer.echo(tables.verdict(table) + "\n")
        print_table(*tables.parameters(table), "", narrow=True)
        typer.echo("")
    print_table(*tables.alternatives(), "", narrow=True)
    typer.echo("")
    for gpus in (512, 10_000) if drawn else ():
        print_table(*tables.ours(drawn, gpus), "", narrow=True)
        typer.echo("")


def _draw(table: Table, drawn: list[CodecCurve], out: Path) -> None:
    from thinwire_lab.figure5.forecasts import write_beside, write_ours

    write_beside(table, out / "figure5.png")
    typer.echo(f"the paper's and the model's: {out / 'figure5.png'}")
    if drawn:
        write_ours(drawn, out / "figure5-ours.png")
        typer.echo(f"our formats: {out / 'figure5-ours.png'}")


def _cells(table: Table, latency: str) -> list[dict[str, Any]]:
    return [
        {
            "latency": latency,
            "cluster": row.cell.cluster,
            "network": row.cell.network,
            "wire": row.cell.wire,
            "gpus": row.cell.gpus,
            "paper_images_per_s": row.cell.images_per_s,
            "digitised_within": row.cell.blur,
            "model_images_per_s": row.images_per_s,
            "error": row.error,
            "role": row.role,
        }
        for row in table.rows
    ]


def _codecs(drawn: list[CodecCurve]) -> list[dict[str, Any]]:
    return [
        {
            "cluster": curve.cluster,
            "network": curve.network,
            "codec": curve.codec,
            "gpus": one.setting.topology.workers,
            "way": one.way,
            "step_ms": None if one.refusal else 1e3 * one.step_s,
            "images_per_s": None if one.refusal else one.examples_per_s,
            "bytes_per_worker": None if one.refusal else one.sent_bytes,
        }
        for curve in drawn
        for one in curve.forecasts
    ]


def picture(
    out: Annotated[Path, typer.Argument(help="The SVG to write.")],
    accuracy: Annotated[Path, typer.Option(help="Lines that compare --records wrote.")],
    speed: Annotated[Path, typer.Option(help="Lines that bench grid wrote.")] = Path(
        "docs/records/grid.jsonl"
    ),
    model: Annotated[str, typer.Option(help="Model of the grid.")] = "alexnet",
    workers: Annotated[int, typer.Option(help="Workers of the grid.")] = 4,
    rates: Annotated[
        str, typer.Option(help="One or two links of the grid; the bars show the first.")
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
    from thinwire_lab.run.records import RunRecords
    from thinwire_lab.study.accuracy import accuracy_studies
    from thinwire_lab.study.gain import gains_of, write_opening_picture

    if not speed.is_file():
        raise LabError(f"{speed} does not exist: name a file that thinwire bench grid wrote")
    links = split_codecs(rates)
    if not 1 <= len(links) <= 2:
        raise LabError(f"rates={rates} must be one link or two, as in 100mbit,1gbit")
    gains = gains_of(read_records(speed), model, workers, links, split_codecs(hooks))
    costs = accuracy_studies(RunRecords(accuracy).checked().runs())[-1].only(split_codecs(codecs or ""))
    setting = f"{model}, {workers} workers, measured"
    write_opening_picture(out, gains, links, setting, costs)
    typer.echo(f"wrote {out}")

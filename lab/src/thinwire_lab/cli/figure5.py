"""thinwire figure5: TernGrad's Figure 5 by the performance model, judged cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire_lab.cli.row_table import print_table

if TYPE_CHECKING:
    from thinwire.perf.figure5.judged import Table
    from thinwire.perf.figure5.ours import Curve


def figure5(
    out: Annotated[Path, typer.Option(help="Folder for the two pictures.")] = Path(),
    ours: Annotated[
        bool, typer.Option("--ours/--no-ours", help="Also our own formats, up to 10,000 workers.")
    ] = True,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON row a cell and table, then one a codec; no pictures.")
    ] = False,
) -> None:
    """Regenerate TernGrad's Figure 5 and compare it with the paper's values.

    Parameters are fitted on the cells of up to 16 GPUs; the others are predicted. A second table has its
    latency from one cell of 512 GPUs, which then does not count.

    \b
    Examples:
      thinwire figure5 --out docs
      thinwire figure5 --no-ours --json > cells.jsonl
    """
    from thinwire.perf.figure5.judged import judge
    from thinwire.perf.figure5.ours import curves

    assumed, fitted = judge(), judge(with_latency=True)
    drawn = curves(fitted.clusters) if ours else []
    if as_json:
        for row in [*_cells(assumed, "assumed"), *_cells(fitted, "fitted"), *_codecs(drawn)]:
            typer.echo(json.dumps(row))
        return
    _print(assumed, fitted, drawn)
    _draw(assumed, drawn, out)


def _print(assumed: Table, fitted: Table, drawn: list[Curve]) -> None:
    from thinwire.perf.figure5 import tables

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


def _draw(table: Table, drawn: list[Curve], out: Path) -> None:
    from thinwire.perf.figure5.picture import write_beside, write_ours

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


def _codecs(drawn: list[Curve]) -> list[dict[str, Any]]:
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

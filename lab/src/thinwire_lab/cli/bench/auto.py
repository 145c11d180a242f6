"""`thinwire bench auto`: what `auto` takes on real links, beside all that it may take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from thinwire.texts.rate import rate_or_none
from thinwire.texts.words import counted
from thinwire_lab.cli.bench.cells import CellProgress, whole_numbers
from thinwire_lab.cli.bench.options import Json
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable

TABLE = RowTable(
    (
        ("ddp", lambda r: f"{r['measured_ms']['ddp']:.0f} ms"),
        ("auto", lambda r: f"{r['measured_ms']['auto']:.0f} ms"),
        ("took", lambda r: r["took"]),
        ("steps", lambda r: str(r["auto_steps"])),
        ("cell", lambda r: f"{r['model']}, {r['rate'] or 'unshaped'}, {r['workers']}"),
    )
)


def auto(
    models: Annotated[str, typer.Option(help="Models of the lab.")] = "mlp,lstm,gpt,resnet20,alexnet",
    rates: Annotated[
        str, typer.Option(help="Rates of every link; none: unshaped.")
    ] = "20mbit,100mbit,300mbit,1gbit,none",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "2,4",
    busy: Annotated[bool, typer.Option("--busy", help="With two busy loops beside every cell.")] = False,
    quality: Annotated[
        str | None, typer.Option(help="What auto may take. Default: by the net's optimizer.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="For timing a cell, about; 3 turns at least.", min=0)] = 20,
    again: Annotated[bool, typer.Option("--again", help="Run cells that are recorded, too.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Run nothing, write the page.")] = False,
    records: Annotated[Path, typer.Option(help="One line for each finished cell.")] = Path(
        "docs/records/auto.jsonl"
    ),
    page: Annotated[Path, typer.Option(help="The page that is made of them.")] = Path("docs/auto-grid.md"),
    as_json: Json = False,
) -> None:
    """Let auto decide on real links, then time its choice beside plain DDP and every codec allowed.

    A finished cell is one line of the records and is not run again: the command can be stopped and go on.
    Shaped links need netlab (root). Nothing else should run on the machine. All cells take about an hour
    on 2 cores.

    \b
    Examples:
      thinwire bench auto
      thinwire bench auto --models mlp --rates 100mbit --workers 4 --quality aggressive --again
      thinwire bench auto --busy --models gpt,resnet20 --rates 100mbit,1gbit
      thinwire bench auto --report
    """
    from thinwire_lab.bench.auto_cells import run_auto_cells, wanted_cells, write_page
    from thinwire_lab.bench.grid import read_records

    if not report:
        limits = [rate_or_none(rate) for rate in split_codecs(rates)]
        wanted = wanted_cells(split_codecs(models), limits, whole_numbers("--workers", workers), busy)
        with CellProgress(len(wanted), quiet=as_json) as progress:
            rows = run_auto_cells(wanted, quality, seconds, records, again, progress.told)
            TABLE.show(rows, counted(len(wanted), "cell"), as_json)
    typer.echo(write_page(read_records(records), page, records), err=True)

"""`thinwire bench grid`: forecasts against measurement, cell by cell, with a record of each."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.texts.rate import rate_or_none
from thinwire.texts.words import counted
from thinwire_lab.cli.bench.cells import CellProgress, whole_numbers
from thinwire_lab.cli.bench.options import Json
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable

if TYPE_CHECKING:
    from thinwire_lab.bench.cell import Cell, CellJob

TABLE = RowTable(
    (
        ("cell", lambda r: f"{r['model']}, {r['rate'] or 'unshaped'}, {r['workers']} workers"),
        ("ddp", lambda r: f"{r['measured_ms']['ddp']:.1f} ms"),
        ("repeats", lambda r: str(r["repeats"])),
        ("errors of the forecast, percent", lambda r: _errors(r)),
    )
)


def grid(
    models: Annotated[str, typer.Option(help="Models of the lab.")] = "alexnet,resnet20",
    rates: Annotated[str, typer.Option(help="Rates of every link; none: unshaped.")] = "100mbit,1gbit,none",
    workers: Annotated[str, typer.Option(help="Numbers of workers.")] = "2,4,8",
    codecs: Annotated[
        str, typer.Option(help="Codecs to forecast and to time, besides plain DDP.")
    ] = "fp16,terngrad,qsgd:4,gradiveq:8,topk:0.01",
    others: Annotated[str, typer.Option(help='Hooks that are timed only; "" for none.')] = "auto",
    batch: Annotated[int, typer.Option(help="Examples per worker.", min=1)] = 16,
    seconds: Annotated[float, typer.Option(help="For timing a cell, about; 3 turns at least.", min=0)] = 80,
    repeats: Annotated[int, typer.Option(help="Timed turns of a cell, at most.", min=1)] = 15,
    probe_seconds: Annotated[float, typer.Option(help="For the link, and for the codecs.", min=0.01)] = 1.5,
    again: Annotated[bool, typer.Option("--again", help="Run cells that are recorded, too.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Run nothing, write the page.")] = False,
    records: Annotated[Path, typer.Option(help="One line for each finished cell.")] = Path(
        "docs/records/grid.jsonl"
    ),
    page: Annotated[Path, typer.Option(help="The page that is made of them.")] = Path("docs/grid.md"),
    as_json: Json = False,
) -> None:
    """Forecast training steps, then measure them, over models, links and workers.

    Each cell measures its inputs (a step without exchange, the link, the codecs), forecasts every codec, and
    only then times them, taking turns. A finished cell is one line of the records and is not run again: the
    grid can be stopped and go on. Shaped links need netlab (root). Nothing else should run on the machine.
    The whole grid takes about 50 minutes on 2 cores.

    \b
    Examples:
      thinwire bench grid
      thinwire bench grid --models resnet20 --rates none --workers 2,4 --others "" --json
      thinwire bench grid --again --models alexnet --rates 1gbit --workers 4
      thinwire bench grid --report
    """
    if report:
        _write(records, page)
        return
    hooks = split_codecs(codecs), split_codecs(others)
    jobs = _jobs(models, rates, workers, *hooks, batch, seconds, repeats, probe_seconds)
    from thinwire_lab.bench.grid import run_grid

    with CellProgress(len(jobs), quiet=as_json) as progress:
        TABLE.show(run_grid(jobs, records, again, progress.told), f"{counted(len(jobs), 'cell')}", as_json)
    _write(records, page)


def _jobs(
    models: str, rates: str, workers: str, codecs: tuple[str, ...], others: tuple[str, ...], *rest: Any
) -> list[tuple[Cell, CellJob]]:
    counts = whole_numbers("--workers", workers)
    limits = [rate_or_none(rate) for rate in split_codecs(rates)]
    from thinwire_lab.bench.cell import cells
    from thinwire_lab.bench.grid import job_of

    made = cells(split_codecs(models), limits, counts)
    return [(cell, job_of(cell, codecs, others, *rest)) for cell in made]


def _write(records: Path, page: Path) -> None:
    from thinwire_lab.bench.grid import read_records
    from thinwire_lab.bench.grid_figures import points
    from thinwire_lab.bench.grid_page import summary, write_page

    found = read_records(records)
    write_page(found, page, page.parent / "figures" / "grid.png", records)
    typer.echo(f"{page}: {counted(len(found), 'cell')}. {summary(points(found))}", err=True)


def _errors(record: dict[str, Any]) -> str:
    both = ((name, ms, record["measured_ms"][name]) for name, ms in record["forecast_ms"].items())
    return ", ".join(f"{name} {100 * (forecast / measured - 1):+.0f}" for name, forecast, measured in both)

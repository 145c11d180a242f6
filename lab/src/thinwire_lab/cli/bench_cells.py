"""`thinwire bench grid`, `auto` and `clusters`: many cells (settings) one after the other, each recorded."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.cli.table import split_codecs
from thinwire.texts import counted, rate_or_none
from thinwire_lab.cli.bars import ProgressBar
from thinwire_lab.cli.options import Json, Latency, RowTable

if TYPE_CHECKING:
    from thinwire_lab.bench.cell import Cell, CellJob


def whole_numbers(option: str, text: str) -> list[int]:
    """Whole numbers with commas between them."""
    words = split_codecs(text)
    wrong = [word for word in words if not word.isdigit()]
    if wrong:
        raise typer.BadParameter(f'{option}: "{wrong[0]}" is not a whole number: write for example 2,4,8')
    return [int(word) for word in words]


class CellProgress(ProgressBar):
    """Which cell is running, and how far all of them are."""

    def __init__(self, cells: Sequence[Cell], quiet: bool) -> None:
        super().__init__(quiet)
        self._cells = list(cells)

    def told(self, cell: Cell, row: dict[str, Any]) -> None:
        place, turns = self._cells.index(cell), row["row"] == "turn"
        title = f"cell {place + 1} of {len(self._cells)}: {cell.name}" + (
            "" if turns else ", measuring inputs"
        )
        self.tell(title, place + (row["turn"] / row["of"] if turns else 0), len(self._cells))


def unrecorded(cells: Sequence[Cell], records: Path, again: bool) -> list[Cell]:
    """The cells that will be run."""
    from thinwire_lab.bench.cell import Cell
    from thinwire_lab.bench.grid import read_records

    known = set() if again else {Cell.of(record) for record in read_records(records)}
    return [cell for cell in cells if cell not in known]


AUTO_TABLE = RowTable(
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
    latency: Latency = None,
    busy: Annotated[bool, typer.Option("--busy", help="Run two busy loops beside every cell.")] = False,
    quality: Annotated[
        str | None,
        typer.Option(help="The quality that auto must hold. Default: by the optimizer of the net."),
    ] = None,
    seconds: Annotated[
        float, typer.Option(help="Seconds to time a cell, approximately; at least 3 turns.", min=0)
    ] = 20,
    again: Annotated[bool, typer.Option("--again", help="Also run cells that are recorded already.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; only write the page.")] = False,
    records: Annotated[Path, typer.Option(help="File with a line for each finished cell.")] = Path(
        "docs/records/auto.jsonl"
    ),
    page: Annotated[Path, typer.Option(help="The page to write from the records.")] = Path(
        "docs/background/auto-grid.md"
    ),
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
      thinwire bench auto --models mlp,gpt --rates 100mbit --workers 4 --latency 20ms
      thinwire bench auto --busy --models gpt,resnet20 --rates 100mbit,1gbit
      thinwire bench auto --report
    """
    from thinwire_lab.bench.auto import run_auto_cells, wanted_cells, write_page
    from thinwire_lab.bench.grid import read_records

    if not report:
        limits = [rate_or_none(rate) for rate in split_codecs(rates)]
        wanted = wanted_cells(
            split_codecs(models), limits, whole_numbers("--workers", workers), busy, latency
        )
        with CellProgress(unrecorded(wanted, records, again), quiet=as_json) as progress:
            rows = run_auto_cells(wanted, quality, seconds, records, again, progress.told)
            AUTO_TABLE.show(rows, counted(len(wanted), "cell"), as_json)
    typer.echo(write_page(read_records(records), page, records), err=True)


GRID_TABLE = RowTable(
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
    seconds: Annotated[
        float, typer.Option(help="Seconds to time a cell, approximately; at least 3 turns.", min=0)
    ] = 80,
    repeats: Annotated[int, typer.Option(help="Maximum of timed turns of a cell.", min=1)] = 15,
    probe_seconds: Annotated[
        float, typer.Option(help="Seconds to probe the link, and as many for the codecs.", min=0.01)
    ] = 1.5,
    again: Annotated[bool, typer.Option("--again", help="Also run cells that are recorded already.")] = False,
    report: Annotated[bool, typer.Option("--report", help="Run nothing; only write the page.")] = False,
    records: Annotated[Path, typer.Option(help="File with a line for each finished cell.")] = Path(
        "docs/records/grid.jsonl"
    ),
    page: Annotated[Path, typer.Option(help="The page to write from the records.")] = Path(
        "docs/background/grid.md"
    ),
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

    missing = unrecorded([cell for cell, _ in jobs], records, again)
    with CellProgress(missing, quiet=as_json) as progress:
        GRID_TABLE.show(
            run_grid(jobs, records, again, progress.told), f"{counted(len(jobs), 'cell')}", as_json
        )
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
    from thinwire_lab.bench.grid import points, read_records
    from thinwire_lab.bench.grid_page import summary, write_page

    found = read_records(records)
    write_page(found, page, page.parent / "figures" / "grid.png", records)
    typer.echo(f"{page}: {counted(len(found), 'cell')}. {summary(points(found))}", err=True)


def _errors(record: dict[str, Any]) -> str:
    both = ((name, ms, record["measured_ms"][name]) for name, ms in record["forecast_ms"].items())
    return ", ".join(f"{name} {100 * (forecast / measured - 1):+.0f}" for name, forecast, measured in both)


def clusters(
    scenarios: Annotated[int, typer.Option(help="Number of scenarios.", min=1)] = 2000,
    first: Annotated[int, typer.Option(help="Seed of the first scenario; the others follow it.", min=0)] = 0,
    records: Annotated[
        Path | None, typer.Option(help="Write one JSON line per decision to this file.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Let auto decide on random simulated clusters and judge its decisions by their true step times.

    Latency 0.05 to 100 ms, 5 Mbit/s to 100 Gbit/s, token buckets, jitter, slow ranks and links, busy cores,
    50 thousand to 100 million parameters, 2 to 64 workers, links that change. Probes, fits, forecasts, trials
    and watch are the real code; how long a collective takes is simulated. Exits with 1 if a limit is missed.

    \b
    Examples:
      thinwire bench clusters
      thinwire bench clusters --scenarios 200 --first 5000 --records runs/clusters.jsonl
    """
    from thinwire_lab.simulated.scenario import play
    from thinwire_lab.simulated.verdicts import Summary

    seeds = range(first, first + scenarios)
    with ProgressBar(as_json) as bar:
        played = bar.over(seeds, "scenarios", scenarios)
        outcomes = [outcome for seed in played for outcome in play(seed)]
    if records is not None:
        records.parent.mkdir(parents=True, exist_ok=True)
        records.write_text("".join(json.dumps(outcome.to_json()) + "\n" for outcome in outcomes))
    summary = Summary.of(outcomes)
    typer.echo(json.dumps(summary.to_json()) if as_json else str(summary))
    if not summary.holds:
        raise typer.Exit(1)

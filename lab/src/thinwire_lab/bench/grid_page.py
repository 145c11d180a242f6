"""The page of a grid: docs/background/grid.md and its picture, made of the records and of nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.bench.cell import AGAIN, AUTO, Record
from thinwire_lab.bench.grid import AutoVerdict, Errors, ForecastPoint, points, spread, verdict
from thinwire_lab.report.drawing import bare, colours, new_figure, save

HEAD = """# The grid: forecast against measurement

Made by `thinwire bench grid` of `{records}`; do not edit. Every cell measures its inputs first (a step
without exchange, the link, the codecs: [Calibration](performance-model.md#calibration)), forecasts, and
only then times all hooks, taking turns. Times are medians of a step in ms. `ddp` is plain
DistributedDataParallel.
"""


def write_page(records: Sequence[Record], path: Path, picture: Path, source: Path) -> None:
    """The page and the picture beside it."""
    if not records:
        raise LabError(f"{source} has no records yet: run thinwire bench grid first")
    ordered = sorted(records, key=lambda r: (r["model"], r["workers"], _rank(r["rate"])))
    made = points(ordered)
    draw(made, picture)
    text = "\n".join(
        [
            HEAD.format(records=source.as_posix()),
            *_machines(ordered),
            "",
            summary(made),
            "",
            f"![Forecast against measurement](../figures/{picture.name})",
            "",
            *_errors(ordered),
            *_times(ordered),
            *_auto(ordered),
        ]
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.rstrip() + "\n")
    except OSError as error:
        raise LabError(f"{path} cannot be written ({error.strerror}): give another --page") from error


def summary(made: Sequence[ForecastPoint]) -> str:
    errors = Errors.of(made)
    return (
        f"**{errors.count} forecasts: median error {errors.median:.1%}, "
        f"90th percentile {errors.ninetieth:.1%}** (asked: 10 % and 25 %)."
    )


def draw(made: Sequence[ForecastPoint], path: Path) -> None:
    """Forecast against measurement on logarithmic axes; the band is 10 %."""
    figure = new_figure(8, 7)
    axes = figure.subplots()
    names = list(dict.fromkeys(point.name for point in made))
    palette = colours(names)
    for name in names:
        own = [point for point in made if point.name == name]
        x, y = [point.measured_ms for point in own], [point.forecast_ms for point in own]
        axes.scatter(x, y, s=26, label=name, color=palette[name])
    ends = [0.8 * min(p.measured_ms for p in made), 1.25 * max(p.measured_ms for p in made)]
    axes.plot(ends, ends, color="#9ca3af", linewidth=1)
    axes.fill_between(ends, [0.9 * e for e in ends], [1.1 * e for e in ends], color="#9ca3af", alpha=0.2)
    axes.set(xscale="log", yscale="log", xlabel="measured, ms a step", ylabel="forecast, ms a step")
    bare(axes)
    axes.legend(frameon=False, title="line: equal; band: 10 %")
    save(figure, path)


def _rank(rate: str | None) -> float:
    from thinwire.texts import parse_rate

    return float("inf") if rate is None else parse_rate(rate)


def _machines(records: Sequence[Record]) -> list[str]:
    machines = dict.fromkeys(record["machine"] for record in records)
    commits = dict.fromkeys(record["commit"] for record in records)
    versions = dict.fromkeys(f"{record['version']}, wire {record['wire_version']}" for record in records)
    return [f"Machine: {'; '.join(machines)}. thinwire {'; '.join(versions)}; commit {', '.join(commits)}."]


def _names(records: Sequence[Record], field: str) -> list[str]:
    return list(dict.fromkeys(name for record in records for name in record[field]))


def _errors(records: Sequence[Record]) -> list[str]:
    """Percent by cell and hook, and a last row of medians."""
    names = _names(records, "forecast_ms")
    lines = ["## Error of the forecast, percent", "", *_heading(["cell", *names])]
    for record in records:
        own = {point.name: f"{100 * point.error:+.1f}" for point in points([record])}
        lines.append(_row([_cell(record), *(own.get(name, "-") for name in names)]))
    each = {name: Errors.of([p for p in points(records) if p.name == name]) for name in names}
    lines.append(_row(["median, without sign", *(f"{100 * each[name].median:.1f}" for name in names)]))
    return [*lines, ""]


def _times(records: Sequence[Record]) -> list[str]:
    names = _names(records, "measured_ms")
    lines = ["## Measured, ms a step (and what was forecast)", "", *_heading(["cell", *names])]
    for record in records:
        lines.append(_row([_cell(record), *(_time(record, name) for name in names)]))
    return [*lines, ""]


def _time(record: Record, name: str) -> str:
    measured = record["measured_ms"].get(name)
    if measured is None:
        return "-"
    forecast = record["forecast_ms"].get(name)
    return f"{measured:,.0f}" if forecast is None else f"{measured:,.0f} ({forecast:,.0f})"


def _auto(records: Sequence[Record]) -> list[str]:
    verdicts = [made for record in records if (made := verdict(record)) is not None]
    if not verdicts:
        spreads = [spread(record) for record in records]
        return [
            f"`{AUTO}` was not run. `{AGAIN}` differs from `ddp` by {max(spreads):.1%} at most (quartile)."
        ]
    held = sum(made.holds for made in verdicts)
    heads = ["cell", "auto against ddp", "best single codec", "auto against it", "A/A spread", "holds"]
    return [
        "## auto, once it has decided",
        "",
        "Percent of a step, + is slower. Asked: at most 5 % slower than ddp and 10 % slower than the best",
        "single codec, each beyond the spread of ddp against itself.",
        f"It holds in {held} of {len(verdicts)} cells.",
        "",
        *_heading(heads),
        *(_row(_verdict(made)) for made in verdicts),
    ]


def _verdict(made: AutoVerdict) -> list[str]:
    shares = (made.slower_than_ddp, made.slower_than_best)
    to_ddp, to_best = (f"{100 * share:+.1f}" for share in shares)
    cell = made.cell.name
    return [cell, to_ddp, made.best, to_best, f"{100 * made.spread:.1f}", "yes" if made.holds else "**no**"]


def _cell(record: Record) -> str:
    return f"{record['model']}, {record['rate'] or 'unshaped'}, {record['workers']}"


def _heading(heads: Sequence[str]) -> list[str]:
    return [_row(heads), "|" + "---|" * len(heads)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"

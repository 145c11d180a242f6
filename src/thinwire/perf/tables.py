"""Tables of forecasts as cells of text, the same for the terminal and for the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from thinwire.perf.forecast import DENSE, HIERARCHICAL
from thinwire.perf.sweep import Range, Row

Cells = tuple[list[str], list[list[str]]]
HEADS = [
    "codec",
    "step ms",
    "against dense",
    "a second",
    "MB sent",
    "compute",
    "codec",
    "wire",
    "hidden",
    "pays, nodes",
]


def headline(rows: Sequence[Row], ranges: Mapping[str, Range]) -> Cells:
    """A line for each codec; times in ms: step = compute + codec + wire - hidden."""
    return HEADS, [_line(row, ranges[row.forecast.codec]) for row in rows]


def _line(row: Row, pays: Range) -> list[str]:
    made = row.forecast
    if made.refusal:
        return [made.codec, "cannot", *["-"] * (len(HEADS) - 3), str(pays)]
    return [
        made.codec + (" *" if made.way == HIERARCHICAL else ""),
        number(1e3 * made.step_s),
        f"{row.speedup:.2f}x",
        number(made.examples_per_s),
        number(made.sent_bytes / 1e6),
        *(number(1e3 * seconds) for seconds in (made.compute_s, made.codec_s, made.wire_s, made.hidden_s)),
        "-" if made.codec == DENSE else str(pays),
    ]


def phase_lines(rows: Sequence[Row]) -> list[str]:
    """A sentence for every codec whose steps are not all alike."""
    return [
        f"{row.forecast.codec}: "
        + ", ".join(
            f"{phase.name} {phase.share:.1%} of the steps, {number(1e3 * phase.times.step_s)} ms, "
            f"{number(phase.sent_bytes / 1e6)} MB"
            for phase in row.forecast.phases
        )
        for row in rows
        if len(row.forecast.phases) > 1
    ]


def swept(name: str, points: Mapping[Any, Sequence[Row]]) -> Cells:
    """Throughput of dense, then every codec's speed against it, a line for each point of a sweep."""
    first = next(iter(points.values()))
    others = [row.forecast.codec for row in first if row.forecast.codec != DENSE]
    heads = [name, "dense ms", "dense a second", *others]
    return heads, [[_at(point), *_dense(rows), *_speeds(rows)] for point, rows in points.items()]


def _at(point: Any) -> str:
    return f"{point:,}" if isinstance(point, int) else str(point)


def _dense(rows: Sequence[Row]) -> list[str]:
    return [number(1e3 * rows[0].dense.step_s), number(rows[0].dense.examples_per_s)]


def _speeds(rows: Sequence[Row]) -> list[str]:
    others = [row for row in rows if row.forecast.codec != DENSE]
    return ["cannot" if row.forecast.refusal else f"{row.speedup:.2f}x" for row in others]


def number(value: float) -> str:
    """Three figures, or whole numbers.

    >>> number(0.1234), number(12.345), number(123456.7)
    ('0.123', '12.3', '123,457')
    """
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def text(cells: Cells) -> str:
    """A table for the terminal: the first column to the left, figures to the right."""
    heads, rows = cells
    lines = [heads, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(heads))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )

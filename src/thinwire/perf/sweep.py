"""Forecasts of several codecs over nodes or links, where a codec pays, and the tables of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from thinwire.perf.forecast import DENSE, FLAT, HIERARCHICAL, Forecast, Setting, forecast
from thinwire.perf.link import LinkModel, link_named

CODECS = (DENSE, "fp16", "terngrad", "qsgd:4", "gradiveq:8,layers=all", "powersgd:4", "topk:0.01", "fft:0.85")
MOST_WORKERS = 10_000
LINK_NAMES = ("100mbit", "1gbit", "10gbit", "25gbit", "ib100", "ib200", "ib400")
WAYS = (FLAT, HIERARCHICAL)
MARGIN = 1.05  # a forecast is not so sure of itself that less would be a promise


@dataclass(frozen=True)
class Row:
    """A codec in a setting, beside dense in the same setting."""

    forecast: Forecast
    dense: Forecast

    @property
    def speedup(self) -> float:
        """Against dense; 0 where the codec cannot serve."""
        return 0.0 if self.forecast.refusal else self.dense.step_s / self.forecast.step_s

    @property
    def pays(self) -> bool:
        """Whether a step is shorter than with dense by more than the margin."""
        return self.forecast.codec != DENSE and self.speedup > MARGIN


def compare(codecs: Sequence[str], setting: Setting, ways: tuple[str, ...] = WAYS) -> list[Row]:
    """Every codec in one setting."""
    dense = forecast(DENSE, setting, ways)
    return [Row(dense if codec == DENSE else forecast(codec, setting, ways), dense) for codec in codecs]


def node_counts(setting: Setting, most_workers: int = MOST_WORKERS) -> list[int]:
    """1, 2, 4, ... nodes, the asked number, and the most there may be."""
    most = max(setting.topology.nodes, most_workers // setting.topology.gpus)
    powers = [2**k for k in range(most.bit_length()) if 2**k <= most]
    return sorted({*powers, setting.topology.nodes, most})


def over_nodes(
    codecs: Sequence[str], setting: Setting, counts: Sequence[int], ways: tuple[str, ...] = WAYS
) -> dict[int, list[Row]]:
    """The codecs at each number of nodes."""
    return {count: compare(codecs, setting.on(setting.topology.with_nodes(count)), ways) for count in counts}


def over_links(
    codecs: Sequence[str], setting: Setting, links: Sequence[LinkModel], ways: tuple[str, ...] = WAYS
) -> dict[str, list[Row]]:
    """The codecs on each link between nodes, slowest first."""
    ordered = sorted(links, key=lambda link: link.bytes_per_s)
    return {
        link.name: compare(codecs, setting.on(replace(setting.topology, inter=link)), ways)
        for link in ordered
    }


def usual_links(asked: LinkModel) -> list[LinkModel]:
    """The links of LINK_NAMES and the one asked for."""
    usual = {name: link_named(name) for name in LINK_NAMES}
    return list({**usual, asked.name: asked}.values())


@dataclass(frozen=True)
class Range:
    """The numbers of nodes, of those looked at, at which a codec pays: runs of neighbours, first and last."""

    runs: tuple[tuple[int, int], ...]
    open_end: bool = False  # it still pays at the most that was looked at

    @property
    def first(self) -> int | None:
        return self.runs[0][0] if self.runs else None

    @property
    def last(self) -> int | None:
        """None if it never pays, or for ever."""
        return self.runs[-1][1] if self.runs and not self.open_end else None

    def __str__(self) -> str:
        """In words.

        >>> str(Range(((2, 64), (256, 256)))), str(Range(((2, 2048),), open_end=True)), str(Range(()))
        ('2 to 64, 256', 'from 2', 'never')
        """
        words = [f"{first:,} to {last:,}" if first < last else f"{first:,}" for first, last in self.runs]
        if self.open_end:
            words[-1] = f"from {self.runs[-1][0]:,}"
        return ", ".join(words) or "never"


def paying_range(codec: str, swept: dict[int, list[Row]]) -> Range:
    """Where a codec is quicker than dense."""
    counts = sorted(swept)
    runs: list[tuple[int, int]] = []
    before = None
    for count in counts:
        if _row(codec, swept[count]).pays:
            joins = runs and runs[-1][1] == before
            runs[-1:] = [(runs[-1][0], count)] if joins else [*runs[-1:], (count, count)]
        before = count
    return Range(tuple(runs), bool(runs) and runs[-1][1] == counts[-1])


def _row(codec: str, rows: list[Row]) -> Row:
    return next(row for row in rows if row.forecast.codec == codec)


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

"""A sweep: forecasts of several codecs over nodes or links, and from where to where a codec pays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from thinwire.perf.forecast import DENSE, FLAT, HIERARCHICAL, Forecast, Setting, forecast
from thinwire.perf.link import Link, link_named

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
    codecs: Sequence[str], setting: Setting, links: Sequence[Link], ways: tuple[str, ...] = WAYS
) -> dict[str, list[Row]]:
    """The codecs on each link between nodes, slowest first."""
    ordered = sorted(links, key=lambda link: link.bytes_per_s)
    return {
        link.name: compare(codecs, setting.on(replace(setting.topology, inter=link)), ways)
        for link in ordered
    }


def usual_links(asked: Link) -> list[Link]:
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

"""Tables: a comparison as cells of text, the same for the terminal and for the HTML report."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.lab.comparison import Line, Spread
from thinwire.lab.data.task import ACCURACY


def headline(lines: Sequence[Line]) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows of the table that sums a comparison up; a single codec is set against fp32."""
    metric = lines[0].metric
    if len(lines) == 1:
        return ["codec", metric, "bytes/step", "fewer than fp32 ring", "step time"], [_single(lines[0])]
    return ["codec", metric, "bytes/step", "ratio", "step time", "speed-up"], [
        _compared(line) for line in lines
    ]


def _single(line: Line) -> list[str]:
    return [*_measured(line), f"{line.dense_ratio:.1f}x", _step_time(line)]


def _compared(line: Line) -> list[str]:
    faster = f"{line.speedup.mean:.2f}x" + (f" ± {line.speedup.deviation:.2f}" if line.seeds > 1 else "")
    return [*_measured(line), f"{line.ratio:.1f}x", _step_time(line), faster]


def _measured(line: Line) -> list[str]:
    return [line.codec, score(line.metric, line.score, line.seeds > 1), byte_count(line.bytes_per_step)]


def _step_time(line: Line) -> str:
    spread = f" ± {line.step_ms.deviation:.1f}" if line.seeds > 1 else ""
    return f"{line.step_ms.mean:.1f}{spread} ms"


def score(metric: str, value: Spread, several: bool) -> str:
    """A score as people read it: accuracy in per cent, anything else as it is."""
    factor, digits, unit = (100, 2, " %") if metric == ACCURACY else (1, 3, "")
    spread = f" ± {factor * value.deviation:.{digits}f}" if several else ""
    return f"{factor * value.mean:.{digits}f}{spread}{unit}"


def byte_count(count: float) -> str:
    """Bytes with a decimal unit and three digits: 907,836 becomes 908 kB, 80,020 becomes 80.0 kB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            return f"{count / size:.{digits}f} {unit}"
    return f"{count:.0f} B"

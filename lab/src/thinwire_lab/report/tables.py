"""Tables: a comparison as cells of text, the same for the terminal and for the HTML report."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.comparison import ComparedCodec
from thinwire_lab.spread import Spread


def headline(lines: Sequence[ComparedCodec]) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows of the table that sums a comparison up; a single codec is set against fp32."""
    metric = f"{lines[0].metric} %" if lines[0].metric == ACCURACY else lines[0].metric
    if len(lines) == 1:
        return ["codec", metric, "bytes/step", "fewer than fp32 ring", "ms/step"], [_single(lines[0])]
    return ["codec", metric, "bytes/step", "ratio", "ms/step", "speed-up"], [
        _compared(line) for line in lines
    ]


def _single(line: ComparedCodec) -> list[str]:
    return [*_measured(line), f"{line.dense_ratio:.1f}x", _step_ms(line)]


def _compared(line: ComparedCodec) -> list[str]:
    faster = f"{line.speedup.mean:.2f}x" + (f" ± {line.speedup.deviation:.2f}" if line.seeds > 1 else "")
    return [*_measured(line), f"{line.ratio:.1f}x", _step_ms(line), faster]


def _measured(line: ComparedCodec) -> list[str]:
    return [line.codec, _number(line.metric, line.score, line.seeds > 1), byte_count(line.bytes_per_step)]


def _step_ms(line: ComparedCodec) -> str:
    return f"{line.step_ms.mean:.1f}" + (f" ± {line.step_ms.deviation:.1f}" if line.seeds > 1 else "")


def score(metric: str, value: Spread, several: bool) -> str:
    """A score as people read it: accuracy in per cent, anything else as it is."""
    return _number(metric, value, several) + (" %" if metric == ACCURACY else "")


def _number(metric: str, value: Spread, several: bool) -> str:
    factor, digits = (100, 2) if metric == ACCURACY else (1, 3)
    spread = f" ± {factor * value.deviation:.{digits}f}" if several else ""
    return f"{factor * value.mean:.{digits}f}{spread}"


def pace(speedup: Spread) -> str:
    """A speed-up in words; what is smaller than its spread over seeds is not called a difference."""
    if abs(speedup.mean - 1) <= max(speedup.deviation, 0.005):
        return "as fast within the spread"
    return f"{speedup.mean:.2f}x faster" if speedup.mean > 1 else f"{1 / speedup.mean:.2f}x slower"


def fewer(ratio: float) -> str:
    """A ratio of bytes in words."""
    return f"{ratio:.1f}x fewer" if ratio >= 1 else f"{1 / ratio:.1f}x more"


def byte_count(count: float) -> str:
    """Bytes with a decimal unit and three digits: 907,836 becomes 908 kB, 80,020 becomes 80.0 kB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            return f"{count / size:.{digits}f} {unit}"
    return f"{count:.0f} B"

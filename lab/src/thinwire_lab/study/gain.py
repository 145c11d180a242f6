"""Gains: how much faster steps are than with plain DDP, and the README's opening picture of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire.texts import counted, show_rate
from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.drawing import bar, colours, dot, sheet, shortened, text
from thinwire_lab.report.record import write_text
from thinwire_lab.study.accuracy import AccuracyComparison, RetainedAccuracy, family

BASE = "ddp"
# Narrow, so that it can be read on a phone, where it is shrunk to two thirds.
WIDTH, HEAD, ROW, GAP = 560, 62, 26, 18
NAMES, BARS, BARS_END, FIRST, SECOND = 14, 158, 352, 452, 546  # the last two: where columns end
NAME_LETTERS = 19
BELOW = 16  # what stands behind "@" in a codec has a line of its own


@dataclass(frozen=True)
class Gain:
    """One hook of the grid, link by link."""

    hook: str
    step_ms: tuple[float, ...]
    speedups: tuple[float, ...]
    took: tuple[str, ...] = ()  # what auto took on each link; empty for a codec that somebody named
    quality: str = ""  # that auto was given


def gains_of(
    records: Iterable[Mapping[str, Any]], model: str, workers: int, rates: Sequence[str], hooks: Sequence[str]
) -> list[Gain]:
    """The hooks in the order asked for, plain DDP first whether asked for or not."""
    cells = {record["rate"]: record for record in records if _is_of(record, model, workers)}
    for rate in rates:
        if rate not in cells:
            raise LabError(
                f"the grid has no cell of {model}, {rate}, {workers} workers: measure it, thinwire bench grid"
            )
    chosen = [cells[rate] for rate in rates]
    wanted = [BASE, *(hook for hook in hooks if hook != BASE)]
    for hook in wanted:
        missing = next((cell["rate"] for cell in chosen if hook not in cell["measured_ms"]), None)
        if missing is not None:
            known = ", ".join(chosen[0]["measured_ms"])
            raise LabError(f"the grid did not measure {hook} at {missing}: it has {known}")
    return [_gain(hook, chosen) for hook in wanted]


def _is_of(record: Mapping[str, Any], model: str, workers: int) -> bool:
    return bool(record["model"] == model and record["workers"] == workers)


def _gain(hook: str, cells: Sequence[Mapping[str, Any]]) -> Gain:
    times, speedups = ([cell[what][hook] for cell in cells] for what in ("measured_ms", "speedup_vs_ddp"))
    took = [_taken(cell[hook]["report"]) for cell in cells] if hook == "auto" else []
    return Gain(
        hook,
        tuple(times),
        tuple(speedups),
        tuple(took),
        cells[0].get("auto_quality", "unknown quality") if took else "",
    )


def _taken(report: str) -> str:
    """
    >>> _taken("auto: powersgd:4 from step 58 on, a step takes 125 ms")
    'powersgd:4'
    """
    found = re.search(r"^auto: (.+?) from step", report, re.M)
    return found[1] if found else "nothing yet"


def write_opening_picture(
    path: Path, gains: Sequence[Gain], rates: Sequence[str], setting: str, costs: AccuracyComparison
) -> None:
    """Time of a step at the first rate as bars, speed-ups at both; below it what scores change, and bytes."""
    rates = [show_rate(rate) for rate in rates]
    palette = colours(family(name) for name in _names(gains, costs))
    notes = list(_notes(gains, rates))
    middle = HEAD + ROW * len(gains) + 17 * len(notes) + GAP
    height = middle + HEAD + _rows_height(costs) + 4
    parts = [
        *_heads(0, "What you gain: time of a training step", setting, rates),
        *_gain_rows(HEAD, gains, palette),
        *(text(NAMES, middle - GAP - 17 * k, note, "quiet") for k, note in enumerate(reversed(notes))),
        f'<line class="line" x1="{NAMES}" x2="{SECOND}" y1="{middle - 4}" y2="{middle - 4}"/>',
        *_heads(
            middle, f"What it costs: test {costs.codecs[0].metric}", _setting(costs), [_unit(costs), "bytes"]
        ),
        *_cost_rows(middle + HEAD, costs, palette),
    ]
    write_text(path, sheet(WIDTH, height, _spoken(gains, rates, costs), parts))


def _names(gains: Sequence[Gain], costs: AccuracyComparison) -> list[str]:
    return [gain.hook for gain in gains] + [cost.codec for cost in costs.codecs]


def _heads(top: int, title: str, setting: str, columns: Sequence[str]) -> Iterator[str]:
    yield text(NAMES, top + 28, title, "head")
    yield text(NAMES, top + 48, setting, "quiet")
    for end, column in zip((FIRST, SECOND), columns, strict=False):
        yield text(end, top + 48, column, "quiet end")


def _gain_rows(top: int, gains: Sequence[Gain], palette: dict[str, str]) -> Iterator[str]:
    most = max(gain.step_ms[0] for gain in gains)
    for k, gain in enumerate(gains):
        y = top + ROW * k
        wide = max(2.0, (BARS_END - 60 - BARS) * gain.step_ms[0] / most)
        yield text(NAMES, y + 15, shortened(gain.hook, NAME_LETTERS))
        yield bar(BARS, y + 2, wide, palette[family(gain.hook)])
        yield text(BARS + wide + 7, y + 15, f"{gain.step_ms[0]:,.0f} ms", "quiet")
        for end, speedup in zip((FIRST, SECOND), gain.speedups, strict=False):
            yield text(end, y + 15, f"{speedup:.1f}x", "end")


def _notes(gains: Sequence[Gain], rates: Sequence[str]) -> Iterator[str]:
    for gain in gains:
        if gain.took:
            told = ", ".join(f"{codec} at {rate}" for codec, rate in zip(gain.took, rates, strict=True))
            yield f"{gain.hook} ({gain.quality}) took {told}"


def _cost_rows(top: int, costs: AccuracyComparison, palette: dict[str, str]) -> Iterator[str]:
    """A dot for each mean change against the baseline, a line for its spread; the ratio of bytes."""
    ends = [
        cost.difference.mean + side * cost.difference.deviation for cost in costs.codecs for side in (-1, 1)
    ]
    room = 0.05 * (max(ends) - min(ends)) or 0.01
    low, high = min(ends) - room, max(ends) + room

    def x(value: float) -> float:
        return BARS + (BARS_END - BARS) * (value - low) / (high - low)

    base, bottom = x(0), top + _rows_height(costs) - 6
    yield f'<line class="line" x1="{base:.1f}" x2="{base:.1f}" y1="{top - 2}" y2="{bottom}"/>'
    y = top - ROW
    for k, cost in enumerate(costs.codecs):
        y += ROW + (BELOW if k and _options(costs.codecs[k - 1]) else 0)
        colour = palette[family(cost.codec)]
        left, right = (x(cost.difference.mean + side * cost.difference.deviation) for side in (-1, 1))
        yield text(NAMES, y + 15, shortened(cost.codec.partition("@")[0].strip(), NAME_LETTERS))
        if options := _options(cost):
            yield text(NAMES + 10, y + 15 + BELOW, options, "quiet")
        yield (
            f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y + 10}" y2="{y + 10}" '
            f'stroke="{colour}" stroke-width="2.5"/>'
        )
        yield dot(x(cost.difference.mean), y + 10, colour)
        yield text(FIRST, y + 15, _change(cost, costs), "end")
        yield text(SECOND, y + 15, _fewer(cost), "end")


def _options(cost: RetainedAccuracy) -> str:
    """What stands behind "@" in its text."""
    return cost.codec.partition("@")[2].strip()


def _rows_height(costs: AccuracyComparison) -> int:
    return ROW * len(costs.codecs) + BELOW * sum(bool(_options(cost)) for cost in costs.codecs)


def _unit(costs: AccuracyComparison) -> str:
    return "points" if costs.codecs[0].metric == ACCURACY else "difference"


def _change(cost: RetainedAccuracy, costs: AccuracyComparison) -> str:
    """The baseline's own score; of others the difference, with its spread over the seeds."""
    factor, digits = (100, 2) if costs.codecs[0].metric == ACCURACY else (1, 3)
    if cost is costs.codecs[0]:
        return f"{factor * cost.score.mean:.{digits}f}{' %' if factor == 100 else ''}"
    several = len(cost.difference.values) > 1
    spread = f" ± {factor * cost.difference.deviation:.{digits}f}" if several else ""
    return f"{factor * cost.difference.mean:+.{digits}f}{spread}"


def _fewer(cost: RetainedAccuracy) -> str:
    return "1x" if abs(cost.ratio - 1) < 0.005 else f"{cost.ratio:.1f}x fewer"


def _setting(costs: AccuracyComparison) -> str:
    recipe, num_seeds = costs.recipe, sorted({len(cost.score.values) for cost in costs.codecs})
    fewest = "" if len(num_seeds) == 1 else f"{num_seeds[0]} to "
    where = f"{recipe.model} on {recipe.task}, {counted(recipe.workers, 'worker')}"
    return f"{where}, {counted(costs.steps, 'step')}, {fewest}{counted(num_seeds[-1], 'seed')}"


def _spoken(gains: Sequence[Gain], rates: Sequence[str], costs: AccuracyComparison) -> str:
    """The same in words, for those who cannot see it."""
    faster = "; ".join(
        f"{g.hook}: {', '.join(f'{s:.1f}x faster at {r}' for s, r in zip(g.speedups, rates, strict=True))}"
        for g in gains[1:]
    )
    dearer = "; ".join(
        f"{c.codec}: {_change(c, costs)} {_unit(costs)}, {_fewer(c)}" for c in costs.codecs[1:]
    )
    metric = costs.codecs[0].metric
    return f"Time of a step against plain DDP: {faster}. Test {metric} against plain DDP: {dearer}."

"""Pictures of a record: its main plots as a PNG, and bytes beside scores as a small SVG for a README."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.texts import counted, parse_rate
from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.costs import codec_cost, level_axis, level_kind, level_rows, scheduled
from thinwire_lab.report.drawing import bar, bare, colours, dot, new_figure, save, sheet, shortened, text
from thinwire_lab.report.page_data import axis_of
from thinwire_lab.report.record import Record, Row, RunOutcome, write_text
from thinwire_lab.report.summary import ComparedCodec, byte_count, compare_outcomes, score, title_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


LONG_NAME = 24  # characters; longer names have no room beside the bars
WIDTH, TOP, ROW, BOTTOM = 820, 58, 30, 34
NAMES, BARS, DOTS, END = 16, 190, 530, 700  # where the columns begin; the last is that of scores as text


def write_picture(record: Record, path: Path) -> None:
    """Score against steps, score against time, bytes per step: three plots in a row.

    If a control was at work, the compression levels takes the place of the score against time.
    """
    names = _palette(record)
    long = max(map(len, names)) > LONG_NAME
    figure = new_figure(12, 3.6 + 0.25 * len(names) * long, dpi=150)
    by_steps, middle, by_bytes = figure.subplots(1, 3)
    _curves(record, by_steps, "step", "steps")
    if scheduled(record):
        _levels(record, middle)
    else:
        _curves(record, middle, "seconds", "seconds of training")
    _bytes(record, by_bytes)
    if long:  # they go below the plots, once
        figure.legend(*by_steps.get_legend_handles_labels(), loc="outside lower left", frameon=False)
        by_bytes.set_yticks([])
    for axes in () if long else figure.axes[: 1 if scheduled(record) else 2]:
        axes.legend(frameon=False)
    figure.suptitle(title_of(record), fontsize="medium" if long else None)
    save(figure, path)


def _curves(record: Record, axes: Axes, x: str, x_name: str) -> None:
    name, factor = axis_of(record.outcomes[0].metric)
    palette = _palette(record)
    for outcome in record.outcomes:
        rows = _evaluations(record, outcome)
        label = outcome.asked if outcome.asked not in axes.get_legend_handles_labels()[1] else None
        values = [factor * row["score"] for row in rows]
        axes.plot([row[x] for row in rows], values, ".-", color=palette[outcome.asked], label=label)
    axes.set(xlabel=x_name, ylabel=name, xlim=(0, None))
    bare(axes)


def _levels(record: Record, axes: Axes) -> None:
    palette = _palette(record)
    for outcome in record.outcomes:
        rows = level_rows(record, outcome)
        values = [row[level_kind(record)] for row in rows]
        axes.step([row["step"] for row in rows], values, where="post", color=palette[outcome.asked])
    axes.set(xlabel="steps", ylabel=level_axis(record), xlim=(0, None), ylim=(-0.03, 1.05))
    bare(axes)


def _bytes(record: Record, axes: Axes) -> None:
    lines = compare_outcomes(record.outcomes)
    palette = _palette(record)
    names = [line.codec for line in lines]
    sizes = [line.bytes_per_step / 1e3 for line in lines]
    bars = axes.barh(names, sizes, height=0.5, color=[palette[name] for name in names])
    axes.bar_label(
        bars, [f"{byte_count(line.bytes_per_step)}, {line.ratio:.1f}x" for line in lines], padding=4
    )
    axes.invert_yaxis()
    axes.set(xlabel="kB sent per step and worker")
    axes.margins(x=0.4, y=0.2)
    bare(axes)


def _palette(record: Record) -> dict[str, str]:
    return colours(outcome.asked for outcome in record.outcomes)


def _evaluations(record: Record, outcome: RunOutcome) -> list[Row]:
    return [row for row in record.rows[outcome.label] if row["row"] == "evaluation"]


def write_headline_picture(record: Record, path: Path, rate: str | None = None) -> None:
    """A bar for each codec beside its score: bytes of a step or, with a rate, its time on such a link."""
    lines = compare_outcomes(record.outcomes)
    palette = colours(line.codec for line in lines)
    gains = _byte_bars(lines) if rate is None else _times(record, lines, parse_rate(rate))
    gain = "bytes a step and worker" if rate is None else f"time of a step at {rate}, computed"
    height = TOP + ROW * len(lines) + BOTTOM
    parts = [
        text(BARS, 34, f"what you gain: {gain}", "quiet"),
        text(DOTS, 34, f"what it costs: test {lines[0].metric}", "quiet"),
        *_bars(lines, gains, palette),
        *_scores(lines, palette),
        text(NAMES, height - 14, _setting(record), "quiet"),
    ]
    write_text(path, sheet(WIDTH, height, _spoken(lines, gains), parts))


def _byte_bars(lines: list[ComparedCodec]) -> list[tuple[float, str]]:
    return [(line.bytes_per_step, byte_count(line.bytes_per_step)) for line in lines]


def _times(record: Record, lines: list[ComparedCodec], rate: float) -> list[tuple[float, str]]:
    seconds = [codec_cost(record, line.codec).seconds(rate) for line in lines]
    return [(value, f"{1e3 * value:.3g} ms") for value in seconds]


def _bars(lines: list[ComparedCodec], gains: list[tuple[float, str]], palette: dict[str, str]) -> list[str]:
    most = max(value for value, _ in gains) or 1.0
    parts = []
    for k, (line, (value, told)) in enumerate(zip(lines, gains, strict=True)):
        top, wide = TOP + ROW * k, max(2.0, 190 * value / most)
        times = "" if k == 0 else f", {_times_less(gains[0][0], value)}"
        parts += [
            text(NAMES, top + 15, shortened(line.codec, 22)),
            bar(BARS, top + 2, wide, palette[line.codec]),
            text(BARS + wide + 8, top + 15, told + times, "quiet"),
        ]
    return parts


def _times_less(base: float, value: float) -> str:
    return (
        f"{base / max(value, 1e-12):.1f}x less" if value <= base else f"{value / max(base, 1e-12):.1f}x more"
    )


def _scores(lines: list[ComparedCodec], palette: dict[str, str]) -> list[str]:
    """A dot for each mean, a line for its spread, and the difference to the first codec."""
    low = min(line.score.mean - line.score.deviation for line in lines)
    high = max(line.score.mean + line.score.deviation for line in lines)
    room = 0.08 * (high - low) or 0.01
    low, high = low - room, high + room

    def x(value: float) -> float:
        return DOTS + (END - 20 - DOTS) * (value - low) / (high - low)

    bottom = TOP + ROW * len(lines) - 8
    base = x(lines[0].score.mean)
    parts = [f'<line class="line" x1="{base:.1f}" x2="{base:.1f}" y1="{TOP - 6}" y2="{bottom}"/>']
    for k, line in enumerate(lines):
        middle, mean, spread = TOP + ROW * k + 11, line.score.mean, line.score.deviation
        colour = palette[line.codec]
        parts += [
            f'<line x1="{x(mean - spread):.1f}" x2="{x(mean + spread):.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="{colour}" stroke-width="2.5"/>',
            dot(x(mean), middle, colour),
            text(END, middle + 4, _difference(line, lines[0])),
        ]
    return parts


def _difference(line: ComparedCodec, base: ComparedCodec) -> str:
    own = score(line.metric, line.score, several=False)
    if line is base:
        return own
    factor, digits = (100, 1) if line.metric == ACCURACY else (1, 3)
    return f"{own} ({factor * (line.score.mean - base.score.mean):+.{digits}f})"


def _setting(record: Record) -> str:
    recipe, num_seeds = record.origin.recipe, len({outcome.seed for outcome in record.outcomes})
    seeds = f"mean of {num_seeds} seeds" if num_seeds > 1 else "one seed"
    where = f"{recipe['model']} on {recipe['task']}, {counted(recipe['workers'], 'worker')}"
    return f"{where}, {counted(record.outcomes[0].steps, 'step')}, {seeds}"


def _spoken(lines: list[ComparedCodec], gains: list[tuple[float, str]]) -> str:
    """The same in words, for those who cannot see it."""
    told = zip(lines, gains, strict=True)
    return "; ".join(f"{line.codec}: {gain}, {_difference(line, lines[0])}" for line, (_, gain) in told)

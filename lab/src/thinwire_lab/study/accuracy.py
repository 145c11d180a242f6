"""Accuracy retained: what a codec loses against plain DDP, seed by seed, as a table and as a picture."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from types import MappingProxyType
from typing import Any

from thinwire.errors import LabError
from thinwire_lab.data.task import ACCURACY, BITS_PER_CHARACTER
from thinwire_lab.report.drawing import colours, sheet, text
from thinwire_lab.report.record import RunOutcome
from thinwire_lab.report.summary import score
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

BASELINES = ("ddp", "dense")
RETAINED = "retained"
SEEDS = 3  # so many it takes to say that accuracy is retained
# What a codec may lose on average: half a point of accuracy, 0.02 nats of a character.
ALLOWED: Mapping[str, float] = MappingProxyType({ACCURACY: 0.005, BITS_PER_CHARACTER: 0.02 / math.log(2)})
HEADS = ("codec", "score", "against DDP, seed by seed", "bytes: times fewer", "verdict")
BEGIN, END = "<!-- accuracy: {name} -->", "<!-- end -->"
WIDTH, HEIGHT = 820, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 52  # margins of the plot
RADIUS, LETTER, LINE = 5, 7.5, 14  # of a dot; of a label, about


@dataclass(frozen=True)
class RetainedAccuracy:
    """One codec of a study beside the baseline; a positive difference is better than the baseline."""

    codec: str
    metric: str
    score: Spread
    difference: Spread  # seed by seed
    ratio: float  # times fewer bytes than a ring all-reduce of fp32
    seeds: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """Retained, lost, or what is known of fewer seeds than it takes."""
        level = self.difference.mean >= -ALLOWED[self.metric]
        if len(self.seeds) < SEEDS:
            return f"{'level' if level else 'behind'} ({len(self.seeds)} of {SEEDS} seeds)"
        return RETAINED if level else "lost"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "codec": self.codec,
            "metric": self.metric,
            "seeds": list(self.seeds),
            "score": self.score.mean,
            "score_deviation": self.score.deviation,
            "difference": self.difference.mean,
            "difference_deviation": self.difference.deviation,
            "ratio": self.ratio,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class AccuracyComparison:
    """All codecs that were run by one recipe, the baseline first, then by how many bytes they save."""

    recipe: Recipe  # of the first run: codec and seed say nothing
    steps: int
    codecs: tuple[RetainedAccuracy, ...]

    @property
    def setting(self) -> str:
        """The recipe in a line."""
        recipe = self.recipe
        return (
            f"{recipe.task}, {recipe.model}, {recipe.workers} workers, batch {recipe.batch} each, "
            f"{recipe.optimizer}, {self.steps} steps"
        )

    def only(self, codecs: Sequence[str]) -> AccuracyComparison:
        """The baseline and the codecs that are named, in that order; all if none is."""
        by_name = {line.codec: line for line in self.codecs}
        lacking = [codec for codec in codecs if codec not in by_name]
        if lacking:
            raise LabError(f"no run of {lacking[0]} has recipe and seed of a run of ddp: compare them in one")
        named = [by_name[codec] for codec in codecs if codec not in BASELINES]
        return replace(self, codecs=(self.codecs[0], *named)) if named else self


def accuracy_studies(runs: Iterable[tuple[Recipe, RunOutcome]]) -> list[AccuracyComparison]:
    """Runs by recipe; a seed without its baseline is left out, a recipe without any is an error.

    Of two runs of the same codec and seed the later one counts.
    """
    groups: dict[Recipe, list[RunOutcome]] = {}
    for recipe, outcome in runs:
        groups.setdefault(replace(recipe, codec="", seed=0), []).append(outcome)
    return [_study(recipe, outcomes) for recipe, outcomes in groups.items()]


def with_baseline(
    runs: Sequence[tuple[Recipe, RunOutcome]], others: Iterable[tuple[Recipe, RunOutcome]]
) -> list[tuple[Recipe, RunOutcome]]:
    """`runs` behind those of ddp among `others` that were made by a recipe of theirs."""
    recipes = {replace(recipe, codec="", seed=0) for recipe, _ in runs}
    plain = [run for run in others if run[0].codec in BASELINES]
    return [*(run for run in plain if replace(run[0], codec="", seed=0) in recipes), *runs]


def _study(recipe: Recipe, outcomes: Sequence[RunOutcome]) -> AccuracyComparison:
    baseline = {run.seed: run for run in outcomes if run.asked in BASELINES}
    if not baseline:
        raise LabError(
            f"no run of ddp with the recipe of {outcomes[0].asked} on {recipe.task}: compare with ddp"
        )
    codecs: dict[str, dict[int, RunOutcome]] = {}
    for run in outcomes:
        if run.seed in baseline:
            codecs.setdefault(run.asked, {})[run.seed] = run
    lines = [_retained(codec, list(runs.values()), baseline) for codec, runs in codecs.items()]
    lines.sort(key=lambda line: (line.codec not in BASELINES, line.ratio))
    return AccuracyComparison(recipe, outcomes[0].steps, tuple(lines))


def _retained(codec: str, runs: Sequence[RunOutcome], baseline: Mapping[int, RunOutcome]) -> RetainedAccuracy:
    metric = runs[0].metric
    better = 1 if metric == ACCURACY else -1
    return RetainedAccuracy(
        codec=codec,
        metric=metric,
        score=Spread.of(run.score for run in runs),
        difference=Spread.of(better * (run.score - baseline[run.seed].score) for run in runs),
        ratio=Spread.of(run.dense_bytes_per_step / max(1.0, run.bytes_per_step) for run in runs).mean,
        seeds=tuple(sorted(run.seed for run in runs)),
    )


def accuracy_rows(study: AccuracyComparison) -> list[list[str]]:
    """A row for each codec."""
    return [
        [
            line.codec,
            score(line.metric, line.score, len(line.seeds) > 1),
            _difference(line),
            f"{line.ratio:.1f}x",
            "" if line.codec in BASELINES else line.verdict,
        ]
        for line in study.codecs
    ]


def accuracy_markdown(study: AccuracyComparison) -> str:
    """The table of a study as markdown; codecs are code, those that retain their accuracy stand out."""
    lines = [f"| {' | '.join(HEADS)} |", f"|{'---|' * len(HEADS)}"]
    for row in accuracy_rows(study):
        verdict = f"**{RETAINED}**" if row[-1] == RETAINED else row[-1]
        lines.append(f"| `{row[0]}` | {' | '.join([*row[1:-1], verdict])} |")
    return "\n".join(lines) + "\n"


def put_table(text: str, name: str, table: str) -> str:
    """A page with the table called `name` in place of the one that it had.

    >>> put_table("a\\n<!-- accuracy: x -->\\nold\\n<!-- end -->\\nb", "x", "new\\n")
    'a\\n<!-- accuracy: x -->\\nnew\\n<!-- end -->\\nb'
    """
    begin = BEGIN.format(name=name)
    before, found, rest = text.partition(begin + "\n")
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise LabError(f"the page has no place for the table: write {begin} and {END} where it belongs")
    return f"{before}{begin}\n{table}{END}{after}"


def _difference(line: RetainedAccuracy) -> str:
    factor, digits = (100, 2) if line.metric == ACCURACY else (1, 3)
    spread = f" ± {factor * line.difference.deviation:.{digits}f}" if len(line.seeds) > 1 else ""
    return f"{factor * line.difference.mean:+.{digits}f}{spread}"


@dataclass(frozen=True)
class Box:
    """A rectangle of the picture."""

    left: float
    right: float
    top: float
    bottom: float

    def meets(self, other: Box) -> bool:
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )

    def inside(self) -> bool:
        """Whether it lies within the plot."""
        within = self.left > LEFT and self.right < WIDTH
        return within and self.top > TOP - LINE and self.bottom <= HEIGHT - BOTTOM + LINE / 2


@dataclass(frozen=True)
class Spot:
    """A place for a label; `side`: "end" for text that ends there; `away`: so many lines from its dot."""

    side: str
    x: float
    y: float
    away: int
    box: Box

    def cost(self, taken: Iterable[Box], bars: Iterable[Box]) -> float:
        """How badly it can be read there: outside, on dots and labels, on bars of deviations, far away."""
        hidden = sum(self.box.meets(other) for other in taken)
        crossed = sum(self.box.meets(bar) for bar in bars)
        return 100 * (not self.box.inside()) + 10 * hidden + 1.5 * crossed + self.away


class AccuracyPicture:
    """Bytes to the right, difference upwards; the band is what counts as retained.

    A codec has the colour of its first word. A full dot is a codec that retains its accuracy, a ring one that
    does not. Codecs that are far below are drawn at the lower edge, with their figure.
    """

    def __init__(self, study: AccuracyComparison) -> None:
        self.study = study
        self.lines = [line for line in study.codecs if line.codec not in BASELINES]
        self.unit, self.factor = (
            ("points", 100.0) if study.codecs[0].metric == ACCURACY else ("bits a character", 1.0)
        )
        self.allowed = self.factor * ALLOWED[study.codecs[0].metric]
        differences = [self.factor * line.difference.mean for line in self.lines]
        self.low = max(min([-2 * self.allowed, *differences]) - 0.4 * self.allowed, -8 * self.allowed)
        self.high = max([self.allowed, *differences]) + 0.4 * self.allowed
        ratios = [line.ratio for line in self.lines] or [4.0]
        self.least = 2.0 ** math.floor(math.log2(max(1.0, min(ratios))))
        self.most = 2.0 ** math.ceil(math.log2(1.15 * max([4.0, *ratios])))
        self.colours = colours(["ddp", *(family(line.codec) for line in self.lines)])

    def svg(self) -> str:
        """The whole picture."""
        spoken = "; ".join(
            f"{line.codec}: {line.ratio:.1f}x fewer, {self._told(line)}" for line in self.lines
        )
        return sheet(
            WIDTH,
            HEIGHT,
            spoken,
            [
                text(16, 26, f"difference to DDP in {self.unit}"),
                text(WIDTH - RIGHT, 26, self.study.setting, "quiet end"),
                *self._grid(),
                *(part for line in self.lines for part in self._dot(line)),
                *self._labels(),
            ],
        )

    def _x(self, ratio: float) -> float:
        share = math.log2(max(ratio, self.least) / self.least) / math.log2(self.most / self.least)
        return LEFT + (WIDTH - LEFT - RIGHT) * share

    def _y(self, difference: float) -> float:
        share = (self.high - max(difference, self.low)) / (self.high - self.low)
        return TOP + (HEIGHT - TOP - BOTTOM) * share

    def _grid(self) -> list[str]:
        top, zero, floor = self._y(self.high), self._y(0.0), self._y(-self.allowed)
        parts = [
            f'<rect x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" height="{floor - top:.1f}" '
            'fill="#12a27a" opacity="0.15"/>',
            f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{zero:.1f}" y2="{zero:.1f}"/>',
            text(LEFT + 6, round(floor - 6, 1), RETAINED, "quiet"),
        ]
        for value in (self.high, 0.0, -self.allowed, self.low):
            parts.append(text(LEFT - 8, round(self._y(value) + 4, 1), f"{value:+.2g}", "quiet end"))
        ratio = self.least
        while ratio <= self.most:
            x = self._x(ratio)
            parts += [
                f'<line class="line" x1="{x:.1f}" x2="{x:.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>',
                f'<text class="quiet" x="{x:.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">'
                f"{ratio:.0f}x</text>",
            ]
            ratio *= 2
        parts.append(
            f'<text class="quiet" x="{WIDTH / 2:.0f}" y="{HEIGHT - 14}" text-anchor="middle">'
            "times fewer bytes than DDP in fp32</text>"
        )
        return parts

    def _dot(self, line: RetainedAccuracy) -> list[str]:
        colour = self.colours[family(line.codec)]
        x, y = self._place(line)
        high, low = self._reach(line)
        fill = colour if line.verdict == RETAINED else "none"
        return [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{high:.1f}" y2="{low:.1f}" stroke="{colour}" '
            'stroke-width="1.5" opacity="0.7"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" stroke="{colour}" stroke-width="2" '
            f'fill="{fill}"><title>{escape(line.codec)}</title></circle>',
        ]

    def _labels(self) -> Iterator[str]:
        """A label for each dot, or for a few of one name that lie together, where least is in the way."""
        dots, bars = map(self._dot_box, self.lines), [self._bar_box(line) for line in self.lines]
        taken = list(dots)
        for name, lines in self._clusters():
            spots = [spot for line in lines for spot in self._spots(name, line)]
            chosen = min(spots, key=lambda spot: spot.cost(taken, bars))
            taken.append(chosen.box)
            kind = chosen.side if any(line.verdict == RETAINED for line in lines) else f"quiet {chosen.side}"
            yield text(round(chosen.x, 1), round(chosen.y, 1), name, kind.strip())

    def _clusters(self) -> list[tuple[str, list[RetainedAccuracy]]]:
        """Dots with the same label that lie closer together than the label is wide."""
        clusters: list[tuple[str, list[RetainedAccuracy]]] = []
        for line in self.lines:
            name = self._name(line)
            x, y = self._place(line)
            for other, members in clusters:
                near = [(abs(x - a), abs(y - b)) for a, b in map(self._place, members)]
                if other == name and any(dx < LETTER * len(name) and dy < LINE for dx, dy in near):
                    members.append(line)
                    break
            else:
                clusters.append((name, [line]))
        return clusters

    def _name(self, line: RetainedAccuracy) -> str:
        below = self.factor * line.difference.mean < self.low
        return f"{family(line.codec)} {self._told(line)}" if below else family(line.codec)

    def _spots(self, name: str, line: RetainedAccuracy) -> Iterator[Spot]:
        """Right, left, then a line higher or lower on either side."""
        x, y = self._place(line)
        gap, width = RADIUS + 4, LETTER * len(name)
        for away in (0, -1, 1, -2, 2):
            middle = y + away * LINE
            top, bottom = middle - LINE / 2, middle + LINE / 2
            yield Spot("", x + gap, middle + 4, abs(away), Box(x + gap, x + gap + width, top, bottom))
            yield Spot("end", x - gap, middle + 4, abs(away), Box(x - gap - width, x - gap, top, bottom))

    def _dot_box(self, line: RetainedAccuracy) -> Box:
        x, y = self._place(line)
        return Box(x - RADIUS, x + RADIUS, y - RADIUS, y + RADIUS)

    def _bar_box(self, line: RetainedAccuracy) -> Box:
        x, _ = self._place(line)
        high, low = self._reach(line)
        return Box(x - 1, x + 1, high, low)

    def _reach(self, line: RetainedAccuracy) -> tuple[float, float]:
        """Where the bar of the deviation begins and ends."""
        mean, reach = self.factor * line.difference.mean, self.factor * line.difference.deviation
        return self._y(min(self.high, mean + reach)), self._y(mean - reach)

    def _place(self, line: RetainedAccuracy) -> tuple[float, float]:
        return self._x(line.ratio), self._y(self.factor * line.difference.mean)

    def _told(self, line: RetainedAccuracy) -> str:
        return f"{self.factor * line.difference.mean:+.{2 if self.factor > 1 else 3}f}"


def family(codec: str) -> str:
    """The first word of a codec text.

    >>> family("gradiveq:4,slice=row >> qsgd:8"), family("sign @ feedback=ef21")
    ('gradiveq', 'sign')
    """
    return re.split(r"[:@>\s]", codec, maxsplit=1)[0]

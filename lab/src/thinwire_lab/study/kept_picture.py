"""The picture of kept accuracy: what each codec loses against the bytes it saves, light or dark."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from html import escape

from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.colours import colours
from thinwire_lab.report.svg import sheet, text
from thinwire_lab.study.kept import ALLOWED, BASELINES, Kept, KeptStudy

WIDTH, HEIGHT = 820, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 52  # margins of the plot
RADIUS, LETTER, LINE = 5, 7.5, 14  # of a dot; of a label, about


class KeptPicture:
    """Bytes to the right, difference upwards; the band is what counts as kept.

    A codec has the colour of its first word; a full dot is kept, a ring is not. Codecs that are far below are
    drawn at the lower edge, with their figure.
    """

    def __init__(self, study: KeptStudy) -> None:
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
            text(LEFT + 6, round(floor - 6, 1), "kept", "quiet"),
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

    def _dot(self, line: Kept) -> list[str]:
        colour = self.colours[family(line.codec)]
        x, y = self._place(line)
        reach = self.factor * line.difference.deviation
        high = self._y(min(self.high, self.factor * line.difference.mean + reach))
        low = self._y(self.factor * line.difference.mean - reach)
        fill = colour if line.verdict == "kept" else "none"
        return [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{high:.1f}" y2="{low:.1f}" stroke="{colour}" '
            'stroke-width="1.5" opacity="0.7"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}" stroke="{colour}" stroke-width="2" '
            f'fill="{fill}"><title>{escape(line.codec)}</title></circle>',
        ]

    def _labels(self) -> Iterator[str]:
        """Right of each dot, or left of it where another dot or label is in the way."""
        taken = [(x - RADIUS, x + RADIUS, y) for x, y in map(self._place, self.lines)]
        for line in self.lines:
            x, y = self._place(line)
            below = self.factor * line.difference.mean < self.low
            name = f"{family(line.codec)} {self._told(line)}" if below else family(line.codec)
            gap, width = RADIUS + 4, LETTER * len(name)
            sides = {"": (x + gap, x + gap + width), "end": (x - gap - width, x - gap)}
            free = [
                side
                for side, (first, last) in sides.items()
                if first > LEFT and last < WIDTH
                if not any(first < b and a < last and abs(y - other) < LINE for a, b, other in taken)
            ]
            side = free[0] if free else ""
            taken.append((*sides[side], y))
            kind = side if line.verdict == "kept" else f"quiet {side}".strip()
            yield text(round(x - gap if side else x + gap, 1), round(y + 4, 1), name, kind)

    def _place(self, line: Kept) -> tuple[float, float]:
        return self._x(line.ratio), self._y(self.factor * line.difference.mean)

    def _told(self, line: Kept) -> str:
        return f"{self.factor * line.difference.mean:+.{2 if self.factor > 1 else 3}f}"


def family(codec: str) -> str:
    """The first word of a codec text.

    >>> family("gradiveq:4,slice=row >> qsgd:8"), family("sign @ memory=ef21")
    ('gradiveq', 'sign')
    """
    return re.split(r"[:@>\s]", codec, maxsplit=1)[0]

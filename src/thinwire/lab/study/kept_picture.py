"""The picture of kept accuracy: what each codec loses against the bytes it saves, light or dark."""

from __future__ import annotations

import math
import re
from html import escape

from thinwire.lab.data.task import ACCURACY
from thinwire.lab.report.colours import colours
from thinwire.lab.study.kept import ALLOWED, BASELINES, Kept, KeptStudy

WIDTH, HEIGHT = 820, 420
LEFT, RIGHT, TOP, BOTTOM = 64, 24, 48, 52  # margins of the plot
STYLE = """
text { font: 13px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2937; }
.quiet { font-size: 12.5px; fill: #5b6472; } .paper { fill: #ffffff; } .line { stroke: #d9dde3; }
.kept { fill: #12a27a; opacity: 0.12; }
@media (prefers-color-scheme: dark) { text { fill: #e3e7ed; } .quiet { fill: #9aa4b2; }
  .paper { fill: #0d1117; } .line { stroke: #323a46; } .kept { opacity: 0.22; } }
"""


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
        self.most = 2.0 ** math.ceil(math.log2(1.15 * max([4.0, *(line.ratio for line in self.lines)])))
        self.colours = colours(["ddp", *(family(line.codec) for line in self.lines)])

    def svg(self) -> str:
        """The whole picture."""
        spoken = "; ".join(
            f"{line.codec}: {line.ratio:.1f}x fewer, {self._told(line)}" for line in self.lines
        )
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
                f'role="img" aria-label="{escape(spoken)}">',
                f"<style>{STYLE}</style>",
                f'<rect class="paper" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
                f'<text x="16" y="26">difference to DDP in {self.unit}</text>',
                f'<text class="quiet" x="{WIDTH - RIGHT}" y="26" text-anchor="end">'
                f"{escape(self.study.setting)}</text>",
                *self._grid(),
                *(part for line in self.lines for part in self._dot(line)),
                "</svg>\n",
            ]
        )

    def _x(self, ratio: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * math.log2(max(ratio, 1.0)) / math.log2(self.most)

    def _y(self, difference: float) -> float:
        share = (self.high - max(difference, self.low)) / (self.high - self.low)
        return TOP + (HEIGHT - TOP - BOTTOM) * share

    def _grid(self) -> list[str]:
        top, zero, floor = self._y(self.high), self._y(0.0), self._y(-self.allowed)
        parts = [
            f'<rect class="kept" x="{LEFT}" y="{top:.1f}" width="{WIDTH - LEFT - RIGHT}" '
            f'height="{floor - top:.1f}"/>',
            f'<line class="line" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{zero:.1f}" y2="{zero:.1f}"/>',
            f'<text class="quiet" x="{LEFT + 6}" y="{floor - 6:.1f}">kept</text>',
        ]
        for value in (self.high, 0.0, -self.allowed, self.low):
            parts.append(
                f'<text class="quiet" x="{LEFT - 8}" y="{self._y(value) + 4:.1f}" text-anchor="end">'
                f"{value:+.2g}</text>"
            )
        ratio = 1.0
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
        name = family(line.codec)
        colour = self.colours[name]
        x, y = self._x(line.ratio), self._y(self.factor * line.difference.mean)
        reach = self.factor * line.difference.deviation
        high = self._y(min(self.high, self.factor * line.difference.mean + reach))
        low = self._y(self.factor * line.difference.mean - reach)
        kept = line.verdict == "kept"
        below = self.factor * line.difference.mean < self.low
        label = f"{name} {self._told(line)}" if below else name
        return [
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{high:.1f}" y2="{low:.1f}" stroke="{colour}" '
            'stroke-width="1.5" opacity="0.7"/>',
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" stroke="{colour}" stroke-width="2" '
            f'fill="{colour if kept else "none"}"><title>{escape(line.codec)}</title></circle>',
            f'<text x="{x + 9:.1f}" y="{y + 4:.1f}" class="{"" if kept else "quiet"}">{escape(label)}</text>',
        ]

    def _told(self, line: Kept) -> str:
        return f"{self.factor * line.difference.mean:+.{2 if self.factor > 1 else 3}f}"


def family(codec: str) -> str:
    """The first word of a codec text.

    >>> family("gradiveq:4,slice=row >> qsgd:8"), family("sign @ memory=ef21")
    ('gradiveq', 'sign')
    """
    return re.split(r"[:@>\s]", codec, maxsplit=1)[0]

"""An SVG picture in words: a sheet that is light or dark as its reader is, and texts on it."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

STYLE = """
text { font: 14px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; fill: #1f2937; }
.quiet { font-size: 12.5px; fill: #5b6472; } .head { font-weight: 600; } .end { text-anchor: end; }
.paper { fill: #ffffff; } .line { stroke: #d9dde3; }
@media (prefers-color-scheme: dark) { text { fill: #e3e7ed; } .quiet { fill: #9aa4b2; }
  .paper { fill: #0d1117; } .line { stroke: #323a46; } }
"""


def sheet(width: int, height: int, spoken: str, parts: Iterable[str]) -> str:
    """The whole picture; `spoken` says the same in words, for those who cannot see it."""
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'role="img" aria-label="{escape(spoken)}">',
            f"<style>{STYLE}</style>",
            f'<rect class="paper" width="{width}" height="{height}" rx="8"/>',
            *parts,
            "</svg>\n",
        ]
    )


def text(x: float, y: float, words: str, kind: str = "") -> str:
    """`kind`: classes of the style above."""
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y}"{named}>{escape(words)}</text>'


def bar(x: float, y: float, width: float, colour: str) -> str:
    return f'<rect x="{x}" y="{y}" width="{width:.1f}" height="17" rx="3" fill="{colour}"/>'


def dot(x: float, y: float, colour: str) -> str:
    return f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}"/>'


def shortened(name: str, letters: int) -> str:
    """
    >>> shortened("gradiveq:8,slice=row", 12)
    'gradiveq:8,…'
    """
    return name if len(name) <= letters else f"{name[: letters - 1]}…"

"""Colours of codecs: one each, the same in all plots, readable on white and on black."""

from __future__ import annotations

import colorsys
from collections.abc import Iterable
from itertools import count, islice

# After Okabe and Ito, whose colours colour-blind readers tell apart; the first codec, the baseline, is grey.
FIRST = ("#838c9a", "#2b83c6", "#e0682a", "#12a27a", "#c96ba0", "#d99700", "#8a63d2", "#4fb7d6", "#8a8f1f")
STAGES = {
    "compute": "#8b95a5",
    "wait": "#d14b57",
    "agree": "#8a63d2",
    "encode": "#2b83c6",
    "travel": "#d99700",
    "merge": "#c96ba0",
    "decode": "#12a27a",
}
GOLDEN = 0.618034  # part of the circle of hues: neighbours lie far from each other


def colours(codecs: Iterable[str]) -> dict[str, str]:
    """A colour for each codec, in their order; no two are alike, however many there are."""
    names = list(dict.fromkeys(codecs))
    more = (_hue(k * GOLDEN % 1.0, 0.42 + 0.2 * (k % 2)) for k in count(1))
    return dict(zip(names, [*FIRST, *islice(more, max(0, len(names) - len(FIRST)))], strict=False))


def _hue(hue: float, light: float) -> str:
    red, green, blue = colorsys.hls_to_rgb(hue, light, 0.7)
    return f"#{round(255 * red):02x}{round(255 * green):02x}{round(255 * blue):02x}"

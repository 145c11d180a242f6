"""The palette: a colour for each codec, the same in all pictures of the model."""

from __future__ import annotations

from collections.abc import Sequence

# Okabe and Ito's colours, told apart by colour-blind readers; dense, the baseline, is grey.
COLOURS = {
    "dense": "#6b7280",
    "fp16": "#56b4e9",
    "terngrad": "#0072b2",
    "qsgd": "#009e73",
    "gradiveq": "#e69f00",
    "powersgd": "#cc79a7",
    "topk": "#d55e00",
    "fft": "#000000",
}


def colours(codecs: Sequence[str]) -> dict[str, str]:
    """Every codec's colour: that of its first link, or one that is left if that is taken."""
    chosen: dict[str, str] = {}
    for codec in codecs:
        own = COLOURS.get(codec.partition(":")[0].strip())
        if own is not None and own not in chosen.values():
            chosen[codec] = own
    left = [colour for colour in COLOURS.values() if colour not in chosen.values()] or list(COLOURS.values())
    for k, codec in enumerate(codec for codec in codecs if codec not in chosen):
        chosen[codec] = left[k % len(left)]
    return chosen

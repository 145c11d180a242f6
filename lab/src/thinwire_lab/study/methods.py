"""The methods that are compared: each a ladder of codec texts, from the fewest bits to the most."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from thinwire.errors import LabError

KEPT_RUNGS = 20_000  # ratios are multiples of 1/20000: fine enough for 0.1 % of the bits
MOST_KEPT = 0.5  # beyond that selecting saves nothing
SLICE = 256
VALUES = "rangefloat:10"  # the paper's format for what is kept
# d whose ratio 256 / d gives d back in floating point; gradiveq refuses the others
WIDTHS = tuple(d for d in range(1, SLICE // 2 + 1) if SLICE / (SLICE / d) == d)


@dataclass(frozen=True)
class Method:
    """A way to compress. `text(rung, window)` is its codec; with every rung it sends more bits.

    `window` is the number of earlier steps at hand; `learns` says that the codec must see them first.
    """

    name: str
    rungs: int
    text: Callable[[int, int], str]
    learns: bool = False


def kept(rung: int) -> float:
    """The share that is kept on a rung.

    >>> kept(2999)
    0.15
    """
    return round((rung + 1) / KEPT_RUNGS, 6)


def _fft(chunk: str) -> Callable[[int, int], str]:
    return lambda rung, _: f"fft:{round(1 - kept(rung), 6)!r},chunk={chunk}"


def _topk(stage: str, coder: str) -> Callable[[int, int], str]:
    return lambda rung, _: f"{stage}topk:{kept(rung)!r} >> {coder}"


def _gradiveq(coder: str) -> Callable[[int, int], str]:
    def text(rung: int, window: int) -> str:
        ratio = SLICE / WIDTHS[rung]
        return f"gradiveq:{ratio!r},slice={SLICE},layers=all,sample={max(1, window)} >> {coder}"

    return text


_SELECTING = int(MOST_KEPT * KEPT_RUNGS)
_METHODS = (
    Method("fft", _SELECTING, _fft("4096")),
    Method("fft whole", _SELECTING, _fft("tensor")),
    Method("dct", _SELECTING, _topk("dct >> ", VALUES)),
    Method("topk", _SELECTING, _topk("", VALUES)),
    Method("topk fp32", _SELECTING, _topk("", "dense")),
    Method("terngrad", 1, lambda rung, _: "terngrad"),
    Method("qsgd", 7, lambda rung, _: f"qsgd:{2 + rung}"),
    Method("qsgd l2", 7, lambda rung, _: f"qsgd:{2 + rung},norm=l2"),
    Method("gradiveq", len(WIDTHS), _gradiveq("dense"), learns=True),
    Method("gradiveq qsgd:8", len(WIDTHS), _gradiveq("qsgd:8"), learns=True),
)
METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _METHODS})


def read_methods(text: str) -> Sequence[Method]:
    """Names separated by commas; "all" is all of them."""
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise LabError(f'--methods: there is no method "{name}": known are {", ".join(METHODS)}')
    if not names:
        raise LabError(f"no method named: give --methods all, or some of {', '.join(METHODS)}")
    return [METHODS[name] for name in dict.fromkeys(names)]

"""A fit: the rung of a method's ladder whose planned bits are nearest to a target."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.tensors.layout import Layout
from thinwire_lab.study.methods import Method
from thinwire_lab.study.probe import planned_bits

TOLERANCE = 0.05  # a fit farther from its target is shown with its own bits and compared with nobody


@dataclass(frozen=True)
class Fit:
    """A codec text, the bits per element that it plans to send, and the bits that were asked for."""

    method: Method
    codec: str
    bits: float
    target: float

    @property
    def meets(self) -> bool:
        return abs(self.bits - self.target) <= TOLERANCE * self.target


def fit(method: Method, layout: Layout, target: float, window: int = 0) -> Fit:
    """Bisection: bits grow with the rung, so halve the ladder around the target, then take the nearer end."""
    low, high = 0, method.rungs - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _bits(method, middle, layout, window) <= target:
            low = middle
        else:
            high = middle
    ends = [(_bits(method, rung, layout, window), rung) for rung in dict.fromkeys((low, high))]
    bits, rung = min(ends, key=lambda end: abs(end[0] - target))
    return Fit(method, method.text(rung, window), bits, target)


def _bits(method: Method, rung: int, layout: Layout, window: int) -> float:
    """In the phase in which it compresses, which comes after what it learnt."""
    step = max(1, window) + 1 if method.learns else 0
    return planned_bits(method.text(rung, window), layout, step)

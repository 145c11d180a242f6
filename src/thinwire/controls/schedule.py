"""Schedules: the strength is known beforehand, by epoch or by step."""

from __future__ import annotations

import bisect
from abc import abstractmethod
from dataclasses import dataclass

from thinwire.controls.base import Control, ControlState, Seen
from thinwire.errors import CodecError, PlanError
from thinwire.texts.options import one_of, option

Points = tuple[tuple[float, float], ...]
POINTS_RULE = "moments and values from 0 on, such as 0=1/5=0.5/10=0"


def read_points(text: str) -> Points:
    """Reads "0=1/5=0.5": from 0 on 1, from 5 on 0.5."""
    pairs = [pair.partition("=") for pair in text.split("/")]
    return tuple((float(moment), float(value)) for moment, _, value in pairs)


def show_points(points: Points) -> str:
    return "/".join(f"{_shortest(moment)}={_shortest(value)}" for moment, value in points)


def _shortest(value: float) -> str:
    """All digits, and none too many: ranks compare these texts."""
    return str(int(value)) if value == int(value) else repr(value)


@dataclass(frozen=True)
class Schedule(Control[ControlState]):
    """Piecewise constant: the value of the last point that is not behind the moment reached.

    Values are strengths in [0, 1] of the codec's strength, or with of=theta the dropped part itself.
    """

    points: tuple[tuple[float, float], ...] = option((), read_points, POINTS_RULE, show_points)
    of: str = option("strength", one_of("strength", "theta"), '"strength" or "theta"')

    def __post_init__(self) -> None:
        moments = [moment for moment, _ in self.points]
        if not moments or moments[0] != 0 or moments != sorted(set(moments)):
            raise CodecError(f"{self._name}: points {show_points(self.points)!r} do not fit: {POINTS_RULE}")
        for moment, value in self.points:
            if not 0 <= value <= 1:
                raise CodecError(f"{self._name}: {value:g} at {moment:g} must be at least 0 and at most 1")

    def check(self, theta: float | None) -> None:
        if self.of == "strength":
            return
        if theta is None:
            raise PlanError(
                f"{self._name}: of=theta needs a codec that drops the same part of all tensors, such "
                "as topk or fft: leave it out, then the values are parts of the codec's strength"
            )
        strongest = max(value for _, value in self.points)
        if strongest > theta:
            raise PlanError(
                f"{self._name}: theta {strongest:g} is more than the codec's {theta:g}: a control only makes "
                "a codec gentler, so give the codec the largest theta"
            )

    def begin(self, theta: float | None) -> ControlState:
        return ControlState(self._strength_at(0, theta))

    def decide(
        self, state: ControlState, seen: Seen, step: int, theta: float | None
    ) -> tuple[ControlState, str]:
        moment = self._moment(seen, step)
        if moment is None:
            return state, ""
        return ControlState(self._strength_at(moment, theta)), f"{self._unit} {moment:g} of the schedule"

    def _strength_at(self, moment: float, theta: float | None) -> float:
        index = bisect.bisect_right([start for start, _ in self.points], moment) - 1
        value = self.points[max(0, index)][1]
        if self.of == "strength":
            return value
        return value / theta if theta else 1.0

    @property
    def _name(self) -> str:
        return type(self).__name__.lower()

    @property
    def _unit(self) -> str:
        return self._name.removesuffix("s")

    @abstractmethod
    def _moment(self, seen: Seen, step: int) -> float | None:
        """How far the training is, None if nobody said."""


@dataclass(frozen=True)
class Epochs(Schedule):
    """By epoch, as observe(epoch=) tells it; fractions are fine.

    >>> Epochs(read_points("0=1/5=0.5")).decide(ControlState(), Seen(epoch=7), 0, None)[0]
    ControlState(strength=0.5)
    """

    needs = "epoch"

    def _moment(self, seen: Seen, step: int) -> float | None:
        return seen.epoch


@dataclass(frozen=True)
class Steps(Schedule):
    """By step; nothing needs to be observed, so nothing is exchanged."""

    def _moment(self, seen: Seen, step: int) -> float | None:
        return step

"""Schedules known beforehand, by epoch or by step, and the diminishing theta of the FFT paper."""

from __future__ import annotations

import bisect
import math
import warnings
from abc import abstractmethod
from dataclasses import dataclass

from thinwire.errors import CodecError, PlanError
from thinwire.schedules.base import Schedule, ScheduleState, Seen
from thinwire.texts import one_of, option

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


LEVEL = "level"


def read_of(text: str) -> str:
    """What the values of a schedule are: "level" (formerly "strength") or "theta"."""
    if text == "strength":
        warnings.warn("of=strength is called of=level now", DeprecationWarning, stacklevel=2)
        return LEVEL
    return one_of(LEVEL, "theta")(text)


@dataclass(frozen=True)
class PiecewiseSchedule(Schedule[ScheduleState]):
    """Piecewise constant: the value of the last point that is not behind the moment reached.

    Values are compression levels from 0 to 1, or with of=theta the dropped part itself.
    """

    points: tuple[tuple[float, float], ...] = option((), read_points, POINTS_RULE, show_points)
    of: str = option(LEVEL, read_of, '"level" or "theta"')

    def __post_init__(self) -> None:
        moments = [moment for moment, _ in self.points]
        if not moments or moments[0] != 0 or moments != sorted(set(moments)):
            raise CodecError(f"{self._name}: points {show_points(self.points)!r} do not fit: {POINTS_RULE}")
        for moment, value in self.points:
            if not 0 <= value <= 1:
                raise CodecError(f"{self._name}: {value:g} at {moment:g} must be at least 0 and at most 1")

    def check(self, theta: float | None) -> None:
        if self.of == LEVEL:
            return
        if theta is None:
            raise PlanError(
                f"{self._name}: of=theta needs a codec that drops the same part of all tensors, such "
                "as topk or fft: leave it out, then the values are compression levels"
            )
        strongest = max(value for _, value in self.points)
        if strongest > theta:
            raise PlanError(
                f"{self._name}: theta {strongest:g} is more than the codec's {theta:g}: a schedule only "
                "lowers the compression level, so give the codec the largest theta"
            )

    def begin(self, theta: float | None) -> ScheduleState:
        return ScheduleState(self._level_at(0, theta))

    def decide(
        self, state: ScheduleState, seen: Seen, step: int, theta: float | None
    ) -> tuple[ScheduleState, str]:
        moment = self._moment(seen, step)
        if moment is None:
            return state, ""
        return ScheduleState(self._level_at(moment, theta)), f"{self._unit} {moment:g} of the schedule"

    def _level_at(self, moment: float, theta: float | None) -> float:
        index = bisect.bisect_right([start for start, _ in self.points], moment) - 1
        value = self.points[max(0, index)][1]
        if self.of == LEVEL:
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
class Epochs(PiecewiseSchedule):
    """By epoch, as observe(epoch=) tells it; fractions are fine.

    >>> Epochs(read_points("0=1/5=0.5")).decide(ScheduleState(), Seen(epoch=7), 0, None)[0]
    ScheduleState(compression_level=0.5)
    """

    needs = "epoch"

    def _moment(self, seen: Seen, step: int) -> float | None:
        return seen.epoch


@dataclass(frozen=True)
class Steps(PiecewiseSchedule):
    """By step; nothing needs to be observed, so nothing is exchanged."""

    def _moment(self, seen: Seen, step: int) -> float | None:
        return step


GRID = 32  # compression levels are multiples of 1/32, so that plans stay few


AUTO, THEOREM = math.inf, 0.0  # values of L that stand for words
MOST = 0.25  # of L eta, for which the theorem is proved


def read_smoothness(text: str) -> float:
    words = {"auto": AUTO, "theorem": THEOREM}
    if text not in words and not 0 < float(text) < math.inf:
        raise ValueError(text)
    return words[text] if text in words else float(text)


def show_smoothness(value: float) -> str:
    return {AUTO: "auto", THEOREM: "theorem"}.get(value) or repr(value)


@dataclass(frozen=True)
class Followed(ScheduleState):
    """The compression level, and the highest learning rate seen so far."""

    highest: float = 0.0


@dataclass(frozen=True)
class Diminish(Schedule[Followed]):
    """theta_t <= L * eta_t, eta_t the learning rate that observe(lr=) tells.

    The theorem: f is L-smooth, SGD takes steps v with E v = grad f and variance at most sigma^2, and a codec
    WITHOUT error feedback drops at most the part th^2 of the energy, |v - Q(v)|^2 <= th^2 |v|^2. Top-k and
    the selection of fft drop the part theta of the numbers, the smallest ones, so th^2 = theta. Then for
    L eta <= 1/4

        E f(x_(t+1)) <= f - eta (1/2 - th^2/2 - L eta/2) |grad f|^2 + (eta th^2/2 + L eta^2/2) sigma^2

    and with th^2 <= L eta the mean of |grad f|^2 is at most 4 (f_0 - f*) / (eta T) + 4 L eta sigma^2: the
    rate of SGD. A constant th leaves a floor of th^2 sigma^2 / (1 - th^2) in the bound as eta goes to 0. So
    the theorem never allows theta > 1/4.

    L=auto takes theta / (highest learning rate so far): the codec is as strong as it was asked for while the
    learning rate is at its highest, and then falls with it. It follows the shape of the theorem, and meets it
    only if theta <= 1/4. L=theorem takes 1 / (4 highest): theta_t <= eta_t / (4 highest), which meets it if
    feedback="none" and the learning rate is one the theorem allows, highest <= 1 / (4 L of f). A number is
    taken as it is. While the learning rate still rises, `highest` does too: give the number 1 / (4 peak) to
    have one L from the first step on. Shares are rounded down to multiples of 1/32.

    >>> Diminish().decide(Followed(highest=0.4), Seen(lr=0.1), 7, None)[0]
    Followed(compression_level=0.25, highest=0.4)
    """

    needs = "lr"

    L: float = option(AUTO, read_smoothness, 'a positive number, "auto" or "theorem"', show_smoothness)

    def __post_init__(self) -> None:
        if not self.L >= 0:
            raise CodecError(f"diminish: L={self.L:g} must be positive, auto or theorem")

    def check(self, theta: float | None) -> None:
        if theta is None and self.L != AUTO:
            raise PlanError(
                f"diminish: L={'theorem' if self.L == THEOREM else f'{self.L:g}'} needs a codec that drops "
                "the same part of all tensors, such "
                "as topk or fft: use L=auto, then the compression level follows the learning rate alone"
            )

    def begin(self, theta: float | None) -> Followed:
        return Followed()

    def decide(self, state: Followed, seen: Seen, step: int, theta: float | None) -> tuple[Followed, str]:
        if seen.lr is None:
            return state, ""
        highest = max(state.highest, seen.lr)
        why = f"learning rate {seen.lr:g}"
        if self.L not in (AUTO, THEOREM) and self.L * seen.lr > MOST:
            why += f", with which L times it is {self.L * seen.lr:.3g}, above the 1/4 of the theorem"
        return Followed(self._level(seen.lr, highest, theta), highest), why

    def _level(self, lr: float, highest: float, theta: float | None) -> float:
        if self.L == AUTO:
            level = lr / highest if highest > 0 else 1.0
        elif not theta:
            level = 1.0
        elif self.L == THEOREM:
            level = MOST * (lr / highest if highest > 0 else 1.0) / theta
        else:
            level = self.L * lr / theta
        return max(0.0, min(1.0, math.floor(level * GRID) / GRID))

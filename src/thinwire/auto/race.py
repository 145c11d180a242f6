"""A race: the steps that were measured under each choice, who is worth a trial, and who wins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from thinwire.auto.choice import Choice
from thinwire.auto.qualities import DENSE
from thinwire.perf.fit import Forecasts

MARGIN = 0.03  # a codec must save so much of a step: less is noise
SURE = 2.0  # standard errors by which one must be quicker than another to be called so
LEAST_ERROR = 0.015  # of a time: what medians of so few steps cannot be better than
MAD_TO_SIGMA = 1.48 * 1.25  # from the median absolute deviation to the error of a median of one
HOPE = 0.75  # forecasts may be wrong by so much: a choice that could still win by that gets a trial
CLOSE = 0.10  # a second choice so close to the best takes part in the last rounds


@dataclass
class Race:
    """Seconds of single steps by choice, the same on all ranks. Plain DDP is one of the choices."""

    steps_s: dict[str, list[float]] = field(default_factory=dict)

    def add(self, text: str, steps_s: Sequence[float]) -> None:
        self.steps_s.setdefault(text, []).extend(steps_s)

    @property
    def measured_s(self) -> dict[str, float]:
        """The median step of every choice."""
        return {text: median(times) for text, times in self.steps_s.items()}

    def error_s(self, text: str) -> float:
        """The standard error of a choice's median step."""
        times = self.steps_s[text]
        middle = median(times)
        spread = MAD_TO_SIGMA * median(abs(s - middle) for s in times)
        return max(LEAST_ERROR * middle, spread / math.sqrt(len(times)))

    def surely_quicker(self, one: str, other: str) -> bool:
        """By more than MARGIN and by more than chance."""
        middle = self.measured_s
        saved = middle[other] - middle[one]
        error = math.hypot(self.error_s(one), self.error_s(other))
        return saved > MARGIN * middle[other] and saved > SURE * error

    @property
    def ranked(self) -> list[str]:
        """Choices by their measured step, the quickest first."""
        middle = self.measured_s
        return sorted(middle, key=lambda text: (middle[text], text))

    def next_trial(self, forecasts: Forecasts, sure_of: int) -> str | None:
        """The untried choice with the best forecast, if it could be quicker than the best so far.

        The first `sure_of` choices get a trial whatever is forecast. Forecasts compare codecs better than
        ways: the best of either way (all workers, or by nodes) comes first.
        """
        forecast_s = forecasts.step_s
        untried = sorted(forecast_s.keys() - self.steps_s.keys(), key=lambda text: (forecast_s[text], text))
        best_s = min(self.measured_s.values())
        hopeful = [text for text in untried if HOPE * forecasts.hopeful_s[text] < best_s]
        ways = {Choice.of(text).by_nodes for text in self.steps_s if text != DENSE}
        other_way = [text for text in hopeful if ways and Choice.of(text).by_nodes not in ways]
        first = [*other_way, *hopeful]
        if not first and len(self.steps_s) <= sure_of:
            first = untried
        return first[0] if first else None

    @property
    def open_between(self) -> list[str]:
        """Whom another round could still decide between: the best codec, who is close to it, plain DDP."""
        codecs = [text for text in self.ranked if text != DENSE]
        if not codecs:
            return []
        best, middle = codecs[0], self.measured_s
        rivals = [
            text
            for text in codecs[1:]
            if middle[text] < (1 + CLOSE) * middle[best] and not self.surely_quicker(best, text)
        ][:1]
        if self.surely_quicker(DENSE, best):
            return []
        doubted = [] if self.surely_quicker(best, DENSE) else [DENSE]
        return [best, *rivals, *doubted] if rivals or doubted else []

    def winner(self, order: Sequence[str]) -> str:
        """The quickest choice that is surely quicker than plain DDP, else plain DDP.

        Of those that are no slower than it as far as can be measured, the first in `order`: it loses least.
        """
        middle = self.measured_s
        sure = [text for text in self.ranked if text != DENSE and self.surely_quicker(text, DENSE)]
        if not sure:
            return DENSE
        level = [text for text in sure if middle[text] <= (1 + LEAST_ERROR) * middle[sure[0]]]
        return min(level, key=lambda text: order.index(text) if text in order else len(order))

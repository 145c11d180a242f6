"""A race: the steps measured under each choice, who is worth a trial, who wins, and the decision."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from thinwire.auto.qualities import DENSE, Selection
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
        ways = {Selection.of(text).by_nodes for text in self.steps_s if text != DENSE}
        other_way = [text for text in hopeful if ways and Selection.of(text).by_nodes not in ways]
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


OFF = 1.25  # times: a forecast that was off by more is mentioned


@dataclass(frozen=True)
class Decision:
    """What all ranks do from a step on. Seconds of a step: what the model said, and what trials measured."""

    codec: str
    step: int
    why: str
    measured_s: Mapping[str, float] = field(default_factory=dict)
    forecast_s: Mapping[str, float] = field(default_factory=dict)
    compute_s: float = 0.0  # of a step: what is not communication
    probed_s: float = 0.0  # plain DDP's step as the probes alone forecast it
    link_bytes: int = 0  # of a message by which another link is noticed
    link_s: float = 0.0  # what it took
    short_s: float = 0.0  # what a short message took
    deciding_s: float = 0.0  # what forecasting, deciding and the switch took; probes and trials are not in it

    @property
    def compresses(self) -> bool:
        return self.codec != DENSE

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "codec": self.codec,
            "step": self.step,
            "why": self.why,
            "measured_s": dict(self.measured_s),
            "forecast_s": dict(self.forecast_s),
            "compute_s": self.compute_s,
            "probed_s": self.probed_s,
            "link_bytes": self.link_bytes,
            "link_s": self.link_s,
            "short_s": self.short_s,
            "deciding_s": self.deciding_s,
        }

    def __str__(self) -> str:
        head = f"auto: {self.codec} from step {self.step} on, {self.why}"
        if not self.measured_s and not self.forecast_s:
            return head
        codecs = list(dict.fromkeys([DENSE, *self.measured_s, *self.forecast_s]))
        width = max(12, *map(len, codecs))
        lines = [head, f"  {'codec':<{width}} {'forecast':>11} {'measured':>11}"]
        for codec in codecs:
            times = _ms(self.forecast_s.get(codec)), _ms(self.measured_s.get(codec))
            lines.append(f"  {codec:<{width}} {times[0]:>11} {times[1]:>11}")
        return "\n".join([*lines, *self._notes()])

    def _notes(self) -> list[str]:
        """What a step consists of, how far off the probes were, and what deciding took."""
        notes = []
        dense = self.measured_s.get(DENSE)
        if dense and self.compute_s:
            share = max(0.0, 1 - self.compute_s / dense)
            notes.append(f"  communication is {share:.0%} of plain DDP's step")
        if dense and self.probed_s:
            ratio = dense / self.probed_s
            if not 1 / OFF < ratio < OFF:
                off = f"{ratio:.3g} times too quick" if ratio > 1 else f"{1 / ratio:.3g} times too slow"
                notes.append(
                    f"  probes alone forecast {_ms(self.probed_s)} for plain DDP, {off}: forecasts are "
                    "fitted to what was measured"
                )
        if self.deciding_s:
            notes.append(f"  forecasting, deciding and the switch took {_ms(self.deciding_s)}")
        return notes


def decide(race: Race, order: Sequence[str], step: int, forecast_s: Mapping[str, float]) -> Decision:
    """The winner of a race, and why it won; `order`: the choices, those that lose least first."""
    measured = race.measured_s
    codec = race.winner(order)
    tried = [text for text in race.ranked if text != DENSE]
    if codec != DENSE:
        why = f"a step takes {_ms(measured[codec])}, {_ms(measured[DENSE])} with plain DDP"
    elif not tried:
        why = "communication is too small a part of a step for any codec to pay"
    elif measured[tried[0]] < measured[DENSE]:
        why = _doubt(race, tried[0])
    else:
        why = f"plain DDP is quicker than {', '.join(tried)} here"
    return Decision(codec, step, why, measured, forecast_s)


def _doubt(race: Race, codec: str) -> str:
    """Why a codec that was measured to be quicker is not taken: too little, or not surely."""
    measured = race.measured_s
    saved = 1 - measured[codec] / measured[DENSE]
    if saved < MARGIN:
        return f"{codec} saves {saved:.1%} of a step, and less than {MARGIN:.0%} is noise"
    return f"{codec} saves {saved:.1%} of a step, but steps vary more than that"


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.4g} ms"

"""A decision of `auto`: the codec, what it was compared with, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thinwire.auto.qualities import DENSE
from thinwire.auto.race import MARGIN, Race

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

"""A decision of `auto`: the codec, what it was compared with, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thinwire.auto.qualities import DENSE

MARGIN = 0.03  # a codec must save so much of a step: less is noise


@dataclass(frozen=True)
class Decision:
    """What all ranks do from a step on. Seconds of a step: what the model said, and what a trial measured."""

    codec: str
    step: int
    why: str
    measured_s: Mapping[str, float] = field(default_factory=dict)
    forecast_s: Mapping[str, float] = field(default_factory=dict)
    link_s: float = 0.0  # what a message of fixed size took, to notice another link

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
            "link_s": self.link_s,
        }

    def __str__(self) -> str:
        head = f"auto: {self.codec} from step {self.step} on, {self.why}"
        if not self.measured_s and not self.forecast_s:
            return head
        lines = [head, f"  {'codec':<12} {'forecast':>11} {'measured':>11}"]
        for codec in dict.fromkeys([DENSE, *self.measured_s, *self.forecast_s]):
            lines.append(
                f"  {codec:<12} {_ms(self.forecast_s.get(codec)):>11} {_ms(self.measured_s.get(codec)):>11}"
            )
        return "\n".join(lines)


def decide(
    measured_s: Mapping[str, float], forecast_s: Mapping[str, float], step: int, link_s: float
) -> Decision:
    """The quickest codec, if it saves enough of plain DDP's step; else plain DDP."""
    dense = measured_s[DENSE]
    best = min(measured_s, key=lambda codec: (measured_s[codec], codec))
    gain = 1 - measured_s[best] / dense
    if best == DENSE:
        tried = [codec for codec in measured_s if codec != DENSE]
        why = f"plain DDP is quicker than {', '.join(tried)} here" if tried else "no codec is forecast to pay"
        return Decision(DENSE, step, why, measured_s, forecast_s, link_s)
    if gain < MARGIN:
        why = f"{best} saves {gain:.1%} of a step, less than noise"
        return Decision(DENSE, step, why, measured_s, forecast_s, link_s)
    why = f"a step takes {1e3 * measured_s[best]:.3g} ms, {1e3 * dense:.3g} ms with plain DDP"
    return Decision(best, step, why, measured_s, forecast_s, link_s)


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.4g} ms"

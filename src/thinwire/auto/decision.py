"""A decision of `auto`: the codec, what it was compared with, and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import mean
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
            "link_s": self.link_s,
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
        if self.deciding_s:
            lines.append(f"  forecasting, deciding and the switch took {_ms(self.deciding_s)}")
        return "\n".join(lines)


def decide(
    rounds_s: Mapping[str, Sequence[float]], forecast_s: Mapping[str, float], step: int, link_s: float
) -> Decision:
    """The quickest codec, if it saves enough of plain DDP's step, and in every round; else plain DDP.

    `rounds_s`: by codec, the seconds of a step in each round of trials.
    """
    measured = {codec: mean(rounds) for codec, rounds in rounds_s.items()}
    tried = sorted(
        (codec for codec in measured if codec != DENSE), key=lambda codec: (measured[codec], codec)
    )
    dense = measured[DENSE]
    better = [codec for codec in tried if measured[codec] < dense]
    sure = [codec for codec in better if _saves(rounds_s[codec], rounds_s[DENSE])]
    codec = DENSE
    if sure:
        codec = sure[0]
        why = f"a step takes {1e3 * measured[codec]:.3g} ms, {1e3 * dense:.3g} ms with plain DDP"
    elif better:
        why = _doubt(better[0], rounds_s[better[0]], rounds_s[DENSE])
    elif tried:
        why = f"plain DDP is quicker than {', '.join(tried)} here"
    else:
        why = "no codec is forecast to pay"
    return Decision(codec, step, why, measured, forecast_s, link_s)


def _saves(rounds: Sequence[float], dense: Sequence[float]) -> bool:
    """In every round something, and enough on average."""
    always = all(mine < theirs for mine, theirs in zip(rounds, dense, strict=True))
    return always and mean(rounds) < (1 - MARGIN) * mean(dense)


def _doubt(codec: str, rounds: Sequence[float], dense: Sequence[float]) -> str:
    """Why a codec that is quicker on average is not taken: too little, or not in every round."""
    saved = 1 - mean(rounds) / mean(dense)
    if saved < MARGIN:
        return f"{codec} saves {saved:.1%} of a step, and less than {MARGIN:.0%} is noise"
    won = sum(mine < theirs for mine, theirs in zip(rounds, dense, strict=True))
    return (
        f"{codec} saves {saved:.1%} of a step on average, but was quicker in {won} of {len(rounds)} rounds "
        "only: steps vary more than it saves"
    )


def _ms(seconds: float | None) -> str:
    return "-" if seconds is None else f"{1e3 * seconds:.4g} ms"

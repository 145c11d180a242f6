"""Forecasts of local steps: how long a run takes if ranks exchange every H steps, codec by codec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thinwire.errors import PlanError
from thinwire.perf.forecast import DENSE, FLAT, Forecast, Setting, forecast


@dataclass(frozen=True)
class LocalForecast:
    """A codec every `every` steps; 1 is DDP, whose exchange hides behind the backward pass.

    step = compute + (codec + wire) / H     nothing is computed while a round's exchange travels
    """

    every: int
    made: Forecast

    @property
    def codec(self) -> str:
        return self.made.codec

    @property
    def step_s(self) -> float:
        """On average over a round."""
        if self.every == 1:
            return self.made.step_s
        return self.made.compute_s + (self.made.codec_s + self.made.wire_s) / self.every

    @property
    def sent_bytes(self) -> float:
        """By one worker in a step, on average over a round."""
        return self.made.sent_bytes / self.every


def local_forecasts(
    codecs: Sequence[str], everys: Sequence[int], setting: Setting, ways: tuple[str, ...] = (FLAT,)
) -> list[LocalForecast]:
    """DDP first, then the others, the quickest first; codecs that cannot serve the cluster are left out."""
    made = [one for codec in codecs if (one := forecast(codec, setting, ways)).refusal is None]
    found = [LocalForecast(every, one) for one in made for every in dict.fromkeys((1, *everys))]
    plain = next(one for one in found if one.codec == DENSE and one.every == 1)
    others = sorted((one for one in found if one is not plain), key=lambda one: one.step_s)
    return [plain, *others]


def read_everys(text: str) -> tuple[int, ...]:
    """Numbers of local steps, separated by commas.

    >>> read_everys("10,30")
    (10, 30)
    """
    try:
        everys = tuple(int(word) for word in text.split(","))
    except ValueError:
        everys = ()
    if not everys or min(everys) < 1:
        raise PlanError(f'--local "{text}" must be numbers of local steps, at least 1, as in 10,30')
    return everys

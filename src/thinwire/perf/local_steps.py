"""Forecasts of local steps: how long a run takes if ranks exchange every H steps, codec by codec."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from thinwire.errors import PlanError
from thinwire.perf.forecast import DENSE, FLAT, Forecast, Setting, forecast

SHARE = 0.1  # of the time of a round, for its exchange
LONGEST_ROUND = 500
STEADY = 1.25  # a length that is right up to this factor is kept: measured times vary


def fewest_local_steps(local: float, exchange: float, now: int) -> int:
    """The least H with exchange / (H local + exchange) <= 10 %, or `now` if that is about right.

    Fewer local steps learn more from each token, so the link decides how many there must be.

    >>> fewest_local_steps(local=1.0, exchange=3.0, now=10), fewest_local_steps(1.0, 0.01, 10)
    (27, 1)
    """
    wanted = exchange * (1 - SHARE) / (SHARE * max(local, 1e-9))
    if now / STEADY <= wanted <= now * STEADY:
        return now
    return min(max(1, math.ceil(wanted)), LONGEST_ROUND)


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

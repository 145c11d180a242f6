"""Forecasts of local steps: how long a run takes if ranks exchange every H steps, codec by codec."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from thinwire.errors import PlanError
from thinwire.perf.forecast import DENSE, FLAT, Forecast, Setting, forecast

CODECS = (DENSE, "fp16", "qsgd:4", "rotated", "sparseloco", "topk:0.01")
# Nats a character lost to DDP at equal tokens, by codec and H: means over the seeds that were run, of a
# transformer of 0.6 M parameters, AdamW, 2,000 steps. docs/background/local-steps.md has the runs.
STUDIED: Mapping[tuple[str, int], float] = MappingProxyType(
    {
        (DENSE, 1): 0.0,
        ("qsgd:4", 1): 0.006,
        ("rotated", 1): 0.012,
        (DENSE, 10): 0.020,
        ("qsgd:4", 10): 0.021,
        (DENSE, 30): 0.037,
        ("qsgd:4", 30): 0.039,
        ("sparseloco", 30): 0.273,
    }
)
ALLOWED = 0.05  # of these nats, for an answer
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

    @property
    def studied_gap(self) -> float | None:
        """What it lost in the study; None where it was not studied."""
        return STUDIED.get((self.codec, self.every))


def local_forecasts(
    codecs: Sequence[str], everys: Sequence[int], setting: Setting, ways: tuple[str, ...] = (FLAT,)
) -> list[LocalForecast]:
    """DDP first, then the others, the quickest first; codecs that cannot serve the cluster are left out."""
    found = []
    for every in dict.fromkeys((1, *everys)):
        own = setting if every == 1 else _without_kinds(setting)
        made = (forecast(codec, own, ways) for codec in codecs)
        found += [LocalForecast(every, one) for one in made if one.refusal is None]
    plain = next(one for one in found if one.codec == DENSE and one.every == 1)
    others = sorted((one for one in found if one is not plain), key=lambda one: one.step_s)
    return [plain, *others]


def _without_kinds(setting: Setting) -> Setting:
    """As tensors without a model are exchanged: embeddings and last layers are compressed like all others."""
    buckets = tuple(tuple(replace(layer, kind="") for layer in bucket) for bucket in setting.buckets)
    return replace(setting, buckets=buckets)


def soonest(found: Sequence[LocalForecast]) -> LocalForecast:
    """What reaches the end first among the studied rows that lost at most 0.05 nats; DDP is one of them."""
    plain = found[0]
    kept = [one for one in found if one.studied_gap is not None and one.studied_gap <= ALLOWED]
    return min([plain, *kept], key=lambda one: one.step_s)


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

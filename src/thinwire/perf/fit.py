"""A fit: by how much links and codecs are slower than probed, so that forecasts equal measurements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

NEAR = 0.05  # a forecast that is off by less needs no fit
WIRE_RANGE, CODEC_RANGE = 64.0, 8.0  # factors that a fit may find, there and back
HALVINGS = 9  # the factor is found within 2 %


@dataclass(frozen=True)
class Fit:
    """Times as long as probed: everything on the wire, everything that codecs compute."""

    wire: float = 1.0
    codec: float = 1.0


@dataclass(frozen=True)
class Forecasts:
    """Seconds of a step by choice. `hopeful_s`: the least of these and of what probes say without a fit.

    `probed_s`: plain DDP's step by the probes alone, before the fit.
    """

    step_s: Mapping[str, float]
    hopeful_s: Mapping[str, float]
    probed_s: float
    fit: Fit = Fit()


def solve(forecast: Callable[[float], float], measured_s: float, most: float) -> float:
    """The factor from 1/most to most for which a forecast that grows with it equals the measurement.

    1 where the forecast is right as it is. Bisection of the factor's logarithm.

    >>> round(solve(lambda factor: 1.0 + 0.5 * factor, 3.0, 64.0), 1)
    4.0
    """
    if abs(forecast(1.0) / measured_s - 1) < NEAR:
        return 1.0
    low, high = -math.log(most), math.log(most)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if forecast(math.exp(middle)) < measured_s:
            low = middle
        else:
            high = middle
    return math.exp((low + high) / 2)

"""A fit of probed links and codecs to measured steps, and forecasts that are made of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from thinwire.perf.calibration import Calibration
from thinwire.perf.codec_probe import RARE
from thinwire.perf.forecast import FLAT, HIERARCHICAL, Forecast, Setting, forecast
from thinwire.perf.link import Topology
from thinwire.perf.network import EMBEDDING, LAST, Bucket, Compute, Layer, Network
from thinwire.perf.wire import DDP, refusal, traffic
from thinwire.plans.policy import Model

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


def bucket_layers(model: Model, buckets: Iterable[Iterable[str]]) -> tuple[Bucket, ...]:
    """DDP's buckets, given by the names of their tensors in the order in which they lie."""
    shapes = {spec.name: spec.shape for spec in model.specs}

    def kind(name: str) -> str:
        return EMBEDDING if name in model.embeddings else LAST if name in model.last else ""

    return tuple(
        tuple(Layer(name, tuple(shapes[name]), kind=kind(name)) for name in names) for names in buckets
    )


def forecast_measured(
    codecs: Sequence[str],
    buckets: Sequence[Bucket],
    world: int,
    calibration: Calibration,
    compute: Compute,
    inside: Calibration | None = None,
) -> list[Forecast]:
    """A forecast for each codec, in order; "ddp" is DDP's own all-reduce, without any hook.

    `buckets` are DDP's actual ones, in the order in which they are ready, which `compute.ready_s` tells.
    `compute` is a step with no exchange while all workers run: what is not backward pass counts as forward.
    A codec that cannot serve the world has a `refusal` and no phases.

    `inside`: what the workers of a node measured among them. Then the `world` that exchanges are the leaders
    of such nodes, to whom `calibration` belongs, and all that happens inside of a node is in the forecast.
    """
    listed = tuple(map(tuple, buckets))
    network = Network("measured", tuple(layer for bucket in listed for layer in bucket), compute.batch)
    per_node, within = (1, calibration) if inside is None else (inside.world, inside)
    topology = Topology(world, per_node, calibration.link, within.link)
    speeds = calibration.speeds_of(_keys(codecs, listed, world))
    setting = Setting(network, topology, compute, speeds, listed)
    way = FLAT if inside is None else HIERARCHICAL
    return [forecast(codec, setting, (way,)) for codec in codecs]


def plan_ahead(codecs: Sequence[str], buckets: Sequence[Bucket], world: int) -> None:
    """Makes the plans that forecasts of these codecs go by, which are kept: a later forecast is quick.

    They depend on shapes alone, so it can be done before anything is measured.
    """
    listed = tuple(map(tuple, buckets))
    for codec in codecs:
        if refusal(codec, listed, world) is None:
            traffic(codec, listed, world)


def _keys(codecs: Sequence[str], buckets: tuple[Bucket, ...], world: int) -> frozenset[str]:
    """What must have been measured: the codecs of all parcels, phases of next to no steps left out."""
    able = [codec for codec in codecs if codec != DDP and refusal(codec, buckets, world) is None]
    return frozenset(
        part.key
        for codec in able
        for phase in traffic(codec, buckets, world)
        if phase.share >= RARE
        for bucket in phase.buckets
        for messages in bucket.routes
        for message in messages
        for part in message.parts
    )

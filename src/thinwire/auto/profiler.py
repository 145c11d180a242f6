"""The profiler of an auto run: links and codecs as measured, and the forecasts made of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch

from thinwire.auto.qualities import DENSE, Selection
from thinwire.auto.watch import Passes
from thinwire.exchange.nodes import SwitchableNode
from thinwire.groups.base import Group
from thinwire.groups.wrappers import Metered
from thinwire.perf.calibration import Calibration
from thinwire.perf.fit import (
    CODEC_RANGE,
    WIRE_RANGE,
    Fit,
    Forecasts,
    bucket_layers,
    forecast_measured,
    plan_ahead,
    solve,
)
from thinwire.perf.link_probe import INSIDE, probe_link
from thinwire.perf.network import Bucket, Compute
from thinwire.perf.probing import first_bytes
from thinwire.perf.store import calibrated
from thinwire.perf.wire import DDP
from thinwire.plans.policy import Model
from thinwire.tensors import Layout

PROBE_SECONDS, PROBE_STEPS = 1.0, 5  # a probe may take so long, and not longer than so many steps
Calibrate = Callable[[Group, torch.device, Sequence[str], float], Calibration]


def _calibrated(group: Group, device: torch.device, codecs: Sequence[str], seconds: float) -> Calibration:
    return calibrated(group, device, codecs, seconds=seconds, quick=True)


class Profiler:
    """Measures all workers as one group and, where they share nodes, leaders and the inside of a node.

    `meter` counts what that sends. Codec speeds may come from the cache, links are measured now: they are
    what changes. All numbers are the same on all ranks.
    """

    def __init__(
        self,
        meter: Metered,
        everybody: Group,
        nodes: SwitchableNode | None,
        device: torch.device,
        model: Model,
        buckets: Sequence[Layout],
        calibrate: Calibrate = _calibrated,
    ) -> None:
        self._meter, self._everybody, self._nodes = meter, everybody, nodes
        self._device, self._model = device, model
        self._buckets = buckets  # of the last step
        self._calibrate = calibrate
        self._factors: dict[tuple[str, Passes, float, float | None], float] = {}  # of fits since the probe
        self._flat: Calibration | None = None
        self._leaders: Calibration | None = None
        self._inside: Calibration | None = None

    def measure(self, codecs: Sequence[str], step_s: float) -> None:
        """Collective: probes, each within PROBE_SECONDS or so; and makes the plans of all forecasts."""
        self._plan_ahead(codecs)
        self._factors.clear()
        seconds = min(PROBE_SECONDS, PROBE_STEPS * step_s)
        able = [codec for codec in codecs if codec != DENSE]
        with self._meter.aside(), self._meter.turned_to(self._everybody):
            self._flat = self._calibrate(self._meter, self._device, able, seconds)
            if self._nodes is not None:
                self._measure_nodes(self._nodes, able, seconds)

    @property
    def burst_bytes(self) -> float:
        """What a worker may send at once beyond the speed of its link."""
        return 0.0 if self._flat is None else self._flat.link.burst_bytes

    @property
    def dense_bytes(self) -> int:
        """Gradients of the last step as plain DDP sends them."""
        return sum(spec.numel * spec.dtype.itemsize for layout in self._buckets for spec in layout.specs)

    def forecasts(self, texts: Sequence[str], passes: Passes, measured_s: Mapping[str, float]) -> Forecasts:
        """Seconds of a step by choice, fitted to the steps measured so far; without those that cannot serve.

        1. the wire is slower (or quicker) than probed by the factor for which plain DDP's forecast equals
           its measurement
        2. codecs by the median of the factors for which each tried choice's forecast equals its own
        """

        wire = self._factor(DENSE, passes, measured_s[DENSE], None)
        tried = [text for text in measured_s if text != DENSE]
        codecs = [self._factor(text, passes, measured_s[text], wire) for text in tried]
        fit = Fit(wire, median(codecs) if codecs else 1.0)
        probed_s = self._forecasts([DENSE], passes, Fit())[DENSE]
        fitted_s = self._forecasts(texts, passes, fit)
        made = [fitted_s, *(self._forecasts(texts, passes, other) for other in {Fit(wire), Fit()} - {fit})]
        hopeful_s = {text: min(one[text] for one in made) for text in fitted_s}
        return Forecasts(fitted_s, hopeful_s, probed_s, fit)

    def _factor(self, text: str, passes: Passes, measured_s: float, wire: float | None) -> float:
        """By how much the wire (None), or on such a wire a choice's codec, is slower than probed."""
        known = text, passes, measured_s, wire
        if known not in self._factors:

            def step_s(factor: float) -> float:
                fit = Fit(factor) if wire is None else Fit(wire, factor)
                return self._forecasts([text], passes, fit)[text]

            most = WIRE_RANGE if wire is None else CODEC_RANGE
            self._factors[known] = solve(step_s, measured_s, most)
        return self._factors[known]

    def _forecasts(self, texts: Sequence[str], passes: Passes, fit: Fit) -> dict[str, float]:
        listed = [Selection.of(text) for text in texts]
        flat = self._one_way([one.codec for one in listed if not one.by_nodes], passes, fit, by_nodes=False)
        nested = self._one_way([one.codec for one in listed if one.by_nodes], passes, fit, by_nodes=True)
        return flat | nested

    def _one_way(self, codecs: Sequence[str], passes: Passes, fit: Fit, by_nodes: bool) -> dict[str, float]:
        calibration = self._leaders if by_nodes else self._flat
        if calibration is None or not codecs:
            return {}
        made = forecast_measured(
            [DDP if codec == DENSE and not by_nodes else codec for codec in codecs],
            self._layers(),
            calibration.world,
            calibration.scaled(fit.wire, fit.codec),
            Compute(1, passes.rest_s, passes.ready_s[-1], passes.ready_s),
            self._inside if by_nodes else None,
        )
        both = zip(codecs, made, strict=True)
        return {str(Selection(codec, by_nodes)): one.step_s for codec, one in both if one.refusal is None}

    def _plan_ahead(self, codecs: Sequence[str]) -> None:
        """So that nobody waits for plans when it comes to deciding: a step is under way then."""
        buckets = self._layers()
        plan_ahead(codecs, buckets, self._everybody.size)
        if self._nodes is not None:
            plan_ahead((DENSE, *codecs), buckets, self._nodes.leaders.size)

    def _layers(self) -> tuple[Bucket, ...]:
        return bucket_layers(self._model, [layout.names for layout in self._buckets])

    def _measure_nodes(self, nodes: SwitchableNode, codecs: Sequence[str], seconds: float) -> None:
        """All nodes look inside at once, then leaders look at each other; what the first rank saw counts."""
        with nodes.shared.group.aside():
            inside = probe_link(nodes.shared.group, self._device, seconds / 2, company=False, kinds=INSIDE)
        found = b""
        if nodes.shared.leads:
            with self._meter.turned_to(nodes.leaders):
                leaders = self._calibrate(self._meter, self._device, codecs, seconds)
            found = json.dumps([inside.to_json(), leaders.to_json()]).encode()
        told = first_bytes(self._meter, found, self._device)
        self._inside, self._leaders = map(Calibration.from_json, json.loads(told))

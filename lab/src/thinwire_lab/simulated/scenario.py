"""Scenarios: random clusters and nets, and an auto run on each."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache

import torch

from thinwire.auto.actions import GroupActions
from thinwire.auto.autotuner import Autotuner
from thinwire.auto.profiler import Profiler
from thinwire.auto.qualities import DENSE, QUALITIES, choices
from thinwire.codecs.codec import parse
from thinwire.groups.base import Group
from thinwire.groups.wrappers import Metered
from thinwire.perf.calibration import Calibration, CodecSpeed
from thinwire.perf.link_probe import probe_link
from thinwire.plans.policy import Model
from thinwire.tensors import Layout, Spec
from thinwire_lab.simulated.cluster import (
    COSTS,
    CPU,
    Job,
    SimulatedClock,
    SimulatedGroup,
    SimulatedNetwork,
    Tensors,
    Wire,
    expected_step_s,
    step,
)
from thinwire_lab.simulated.verdicts import MAX_STEPS, ScenarioOutcome

AFTER_CHANGE = 200  # steps after which a decision must fit the new link
LONGEST_STEP_S = 60.0  # scenarios with longer steps are not used
WORKERS = (2, 4, 8, 16, 32, 64)
BUCKET_BYTES = (1 << 20, 25 << 20)  # DDP's first one, and the others
# (matrices of this shape, how many): from 50 thousand to 100 million parameters
NETS: tuple[tuple[tuple[int, int], int], ...] = (
    ((128, 128), 3),
    ((256, 256), 4),
    ((512, 512), 4),
    ((1024, 784), 3),
    ((1024, 1024), 6),
    ((2048, 1024), 10),
    ((2048, 2048), 10),
    ((4096, 2048), 12),
)


@dataclass(frozen=True)
class Scenario:
    """A cluster, a net and what happens to them. `probed`: by which factor the probe of codecs is wrong."""

    seed: int
    net: int
    workers: int
    quality: str
    wire: Wire
    job: Job
    probed: float
    noise: float
    after: Wire | None = None  # the wire that it changes to, when it has been decided

    @property
    def model(self) -> Model:
        return _model(self.net)


@lru_cache
def _model(net: int) -> Model:
    (shape, count) = NETS[net]
    names = [f"layers.{k}.weight" for k in range(count)]
    specs = [Spec(name, shape) for name in names] + [Spec("head.weight", (10, shape[0]))]
    biases = [Spec(f"layers.{k}.bias", (shape[0],)) for k in range(count)]
    both = [spec for pair in zip(specs, biases, strict=False) for spec in pair]
    return Model((*both, specs[-1]), frozenset(), frozenset({"head.weight"}))


@lru_cache
def _layouts(net: int) -> tuple[Layout, ...]:
    """DDP's buckets: tensors from the last to the first, closed when they have reached their size."""
    made: list[list[Spec]] = [[]]
    for spec in reversed(_model(net).specs):
        made[-1].append(spec)
        if 4 * sum(one.numel for one in made[-1]) >= BUCKET_BYTES[min(1, len(made) - 1)]:
            made.append([])
    return tuple(Layout.packed(specs) for specs in made if specs)


@lru_cache
def _tensors(net: int) -> tuple[Tensors, ...]:
    found = []
    for layout in _layouts(net):
        coded = [spec for spec in layout.specs if len(spec.shape) == 2 and spec.shape[0] > 10]
        dense = sum(spec.numel for spec in layout.specs) - sum(spec.numel for spec in coded)
        sides = sum(sum(spec.shape) for spec in coded)
        found.append(Tensors(sum(spec.numel for spec in coded), dense, sides))
    return tuple(found)


def scenario(seed: int) -> Scenario:
    """The scenario of a seed; draws again where a step of plain DDP would take longer than a minute."""
    rng = random.Random(seed)
    while True:
        made = _draw(rng, seed)
        wires = [made.wire] if made.after is None else [made.wire, made.after]
        if all(expected_step_s(made.job, DENSE, w, made.workers, 4) < LONGEST_STEP_S for w in wires):
            return made


def _draw(rng: random.Random, seed: int) -> Scenario:
    net, workers = rng.randrange(len(NETS)), rng.choice(WORKERS)
    numel = sum(spec.numel for spec in _model(net).specs)
    compute_s = max(2e-3, numel * _log(rng, 1e-9, 3e-7))
    busy = rng.choice((1.0, 1.0, _log(rng, 1, 4)))
    slow_rank = rng.choice((1.0,) * 4 + (_log(rng, 1.2, 3),))
    compute_s *= busy * slow_rank
    part = rng.uniform(0.2, 0.6)
    codec_speed = _log(rng, 0.5, 2) * busy * slow_rank
    job = Job((1 - part) * compute_s, part * compute_s, _tensors(net), codec_speed, rng.uniform(0, 1))
    wire = _wire(rng, busy)
    after = _changed(rng, wire) if rng.random() < 0.3 else None
    # the probe does not see the slow rank (it takes medians), and is wrong by itself
    probed = _log(rng, 0.6, 1.7) / slow_rank
    noise = rng.choice((0.01, rng.uniform(0, 0.08)))
    quality = rng.choice(QUALITIES[1:])
    return Scenario(seed, net, workers, quality, wire, job, probed, noise, after)


def _wire(rng: random.Random, busy: float) -> Wire:
    rate = _log(rng, 5e6, 100e9) / 8
    slow_link = rng.choice((1.0,) * 4 + (_log(rng, 1.5, 10),))
    burst = 0.0 if rng.random() < 0.4 else _log(rng, 1 << 16, 16 << 20)
    peak = max(rate, min(100e9 / 8, rate * _log(rng, 2, 100)))
    return Wire(
        _log(rng, 50e-6, 0.1),
        rate / slow_link,
        burst,
        peak,
        rng.choice((0.0, rng.uniform(0, 0.5))),
        busy * _log(rng, 1e-10, 1e-9),
    )


def _changed(rng: random.Random, wire: Wire) -> Wire:
    """Another rate, now and then another latency."""
    factor = _log(rng, 2, 50)
    rate = wire.bytes_per_s * (factor if rng.random() < 0.5 else 1 / factor)
    rate = min(100e9 / 8, max(5e6 / 8, rate))
    latency = wire.latency_s * (_log(rng, 0.1, 10) if rng.random() < 0.3 else 1.0)
    return replace(
        wire,
        bytes_per_s=rate,
        peak_bytes_per_s=max(rate, wire.peak_bytes_per_s),
        latency_s=min(0.1, max(50e-6, latency)),
    )


def _log(rng: random.Random, low: float, high: float) -> float:
    return math.exp(rng.uniform(math.log(low), math.log(high)))


class SimulatedRun:
    """An auto run on a scenario: the real autotuner, actions, survey and probes over a simulated group."""

    def __init__(self, made: Scenario) -> None:
        self.scenario, self.clock, self.codec = made, SimulatedClock(), DENSE
        self.rng = random.Random(made.seed + 1)
        self.network = SimulatedNetwork(made.wire, made.workers, self.rng)
        self.job = made.job
        self.first_trial_s: float | None = None
        group = SimulatedGroup(self.network, self.clock)
        meter = Metered(group)
        layouts = list(_layouts(made.net))
        profiler = Profiler(meter, group, None, CPU, made.model, layouts, self._calibrate)
        actions = GroupActions(
            meter, group, CPU, profiler, lambda act: act(), self._switch, self._switch, self.clock
        )
        self.autotuner = Autotuner(made.quality, actions, made.workers)

    def steps(self, most: int, until_decided: bool = False) -> int:
        """Trains up to `most` steps and returns how many it trained."""
        for count in range(most):
            autotuner = self.autotuner
            autotuner.begin_step(self.clock.now)
            if until_decided and autotuner.decided:
                return count
            slower = self._noise()
            end = step(self.job, self.codec, self.network, self.clock.now, slower, autotuner.pace.ready)
            autotuner.pace.end(end)
            self.clock.now = end + self._noise() * self.job.rest_s
        return most

    def outcome(self, steps: int, wire: Wire, changed: bool = False) -> ScenarioOutcome:
        made = self.scenario
        texts = (DENSE, *choices(made.quality, nodes=False))
        true_s = {text: expected_step_s(made.job, text, wire, made.workers) for text in texts}
        best = min(texts, key=lambda text: true_s[text])
        taken = self.autotuner.codec
        began = self.clock.now if self.first_trial_s is None else self.first_trial_s
        times = true_s[taken], true_s[DENSE], true_s[best]
        return ScenarioOutcome(
            made.seed, taken, best, steps, self.clock.now - began, *times, self.autotuner.decided, changed
        )

    def _switch(self, text: str) -> None:
        self.codec = text
        if text != DENSE and self.first_trial_s is None:
            self.first_trial_s = self.clock.now

    def _noise(self) -> float:
        slower = self.rng.lognormvariate(0.0, self.scenario.noise)
        return slower * self.rng.uniform(1.5, 4) if self.rng.random() < 0.02 else slower

    def _calibrate(
        self, group: Group, device: torch.device, codecs: Sequence[str], seconds: float
    ) -> Calibration:
        linked = probe_link(group, device, seconds, company=False, clock=self.clock)
        factor = 1e-9 * self.job.codec_speed * self.scenario.probed
        return linked.with_speeds(_speeds(tuple(codecs), factor), self.job.contends)


@cache
def _keys(codec: str) -> tuple[str, ...]:
    made = parse(codec)
    phases = dict.fromkeys(made.phase(step).partition(" ")[0] for step in range(50))
    return tuple(dict.fromkeys((codec, str(made), *(f"{made} {phase}".strip() for phase in phases))))


def _speeds(codecs: Sequence[str], factor: float) -> dict[str, CodecSpeed]:
    found = {"dense": CodecSpeed(), "dense sharded": CodecSpeed(encode=0.2 * factor, decode=0.2 * factor)}
    for codec in codecs:
        cost = COSTS[codec]
        speed = CodecSpeed(
            encode=cost.encode_ns,
            decode=cost.decode_ns,
            payload=cost.payload_ns if cost.gathers else 0.0,
            merge=0.0 if cost.gathers else cost.payload_ns,
        ).times(factor)
        found |= dict.fromkeys(_keys(codec), speed)
    return found


def play(seed: int) -> list[ScenarioOutcome]:
    """The decision of one scenario, and where its link changes the one that holds 200 steps later."""
    made = scenario(seed)
    run = SimulatedRun(made)
    steps = run.steps(2 * MAX_STEPS, until_decided=True)
    outcomes = [run.outcome(steps, made.wire)]
    if made.after is not None:
        run.steps(run.rng.randrange(1, 120))
        run.network.change(made.after)
        run.steps(AFTER_CHANGE)
        outcomes.append(run.outcome(AFTER_CHANGE, made.after, changed=True))
    return outcomes

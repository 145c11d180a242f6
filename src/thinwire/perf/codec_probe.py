"""The probe of codecs: the real engine on made-up buckets, without a network, on all ranks at once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch

from thinwire.codecs.codec import parse
from thinwire.errors import LabError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.groups.base import Group
from thinwire.perf.calibration import CodecSpeed
from thinwire.perf.probing import Chore, EchoGroup, barrier, medians, refuse_one, synchronize
from thinwire.perf.wire import speed_key
from thinwire.plans.plan import HORIZON, Plan
from thinwire.plans.policy import Model, Policy
from thinwire.routes import default_route_name
from thinwire.tensors import Layout, Spec

SECONDS = 1.0  # for all codecs together, about
NUMEL = 384 * 384 * 9  # of the large bucket: one part, more than a core's caches hold
SMALL_SHAPE, MANY = (32, 32, 3, 3), 24
DENSE, SHARDED = "dense", "sharded"
STAGES = ("rest", "encode", "merge", "decode")  # of the engine's clock; rest: what it has no name for
SPIN_S = 0.06
MIN_RUNS = 2
RARE = 0.01  # phases of a smaller share of the steps are run, but not timed


@dataclass(frozen=True)
class Load:
    """A bucket to time: so many tensors of one shape."""

    num_tensors: int
    shape: tuple[int, ...]

    @property
    def specs(self) -> tuple[Spec, ...]:
        return tuple(Spec(f"t{k}", self.shape) for k in range(self.num_tensors))

    @property
    def numel(self) -> int:
        return sum(spec.numel for spec in self.specs)


@dataclass(frozen=True)
class Timed:
    """Mean seconds of one exchange of a load, stage by stage."""

    load: Load
    stages: dict[str, float]

    @property
    def total_s(self) -> float:
        return sum(self.stages.values())


def probe_codecs(
    group: Group,
    device: torch.device,
    codecs: Sequence[str],
    numel: int = NUMEL,
    seconds: float = SECONDS,
) -> tuple[dict[str, CodecSpeed], float]:
    """Collective: the speed of each codec by `speed_key`, and how much codecs hold up a backward pass.

    Three buckets a codec and phase, a large one, a small one and one of many small tensors, give seconds an
    element, a tensor and a call. Each is exchanged over and over for the same time on all ranks, so every
    rank sees its codec while the others run theirs. Dense tensors beside a codec are measured as well.
    """
    refuse_one(group)
    wanted = [(str(parse(codec)), None) for codec in codecs]
    routes = {DENSE: None, f"{DENSE} {SHARDED}": SHARDED}
    jobs = [
        *dict.fromkeys(wanted),
        *((DENSE, route) for route in routes.values() if (DENSE, route) not in wanted),
    ]
    window_s = seconds / (len(jobs) * 3)
    names: list[str] = []
    values: list[float] = []
    for codec, route in jobs:
        for key, timed in _codec(group, device, codec, route, numel, window_s).items():
            names.append(key)
            values += _coefficients(timed)
    agreed = medians(group, [*values, _contends(group, device)], device)
    width = len(agreed) // max(1, len(names))
    rows = [agreed[k * width : (k + 1) * width] for k in range(len(names))]
    return {name: _speed(row) for name, row in zip(names, rows, strict=True)}, agreed[-1]


def _coefficients(timed: Sequence[Timed]) -> list[float]:
    """Seconds an element of every stage, then seconds a tensor and a call: three buckets, three unknowns."""
    large, small, many = timed
    elements = large.load.numel - small.load.numel
    each = [max(0.0, (large.stages[s] - small.stages[s]) / elements) for s in STAGES]
    rest = [one.total_s - sum(each) * one.load.numel for one in (small, many)]
    tensor = max(0.0, (rest[1] - rest[0]) / (many.load.num_tensors - small.load.num_tensors))
    return [*each, tensor, max(0.0, rest[0] - tensor * small.load.num_tensors)]


def _speed(row: Sequence[float]) -> CodecSpeed:
    prepare, encode, merge, decode, tensor, part = row
    return CodecSpeed(prepare, encode, merge=merge, decode=decode, tensor=tensor, part=part)


def _codec(
    group: Group, device: torch.device, codec: str, route: str | None, numel: int, window_s: float
) -> dict[str, list[Timed]]:
    """By key of each phase: the large, the small and the many."""
    found: dict[str, list[Timed]] = {}
    for load in _loads(codec, numel):
        bench = _Bench(codec, route, load, group, device)
        for phase, timed in bench.run(window_s).items():
            key = speed_key(codec, phase, route or default_route_name(parse(codec)))
            found.setdefault(key, []).append(timed)
    return found


def _loads(codec: str, numel: int) -> list[Load]:
    """Shapes that the codec takes: a convolution, else a matrix, else a vector."""
    rows = max(1, round((numel / 9) ** 0.5))
    flat = SMALL_SHAPE[0] * SMALL_SHAPE[1] * 9
    for large, small in (
        ((rows, rows, 3, 3), SMALL_SHAPE),
        ((3 * rows, 3 * rows), (SMALL_SHAPE[0] * 3, SMALL_SHAPE[1] * 3)),
        ((9 * rows * rows,), (flat,)),
    ):
        if all(parse(codec).refuses(Spec("t", shape)) is None for shape in (large, small)):
            return [Load(1, large), Load(1, small), Load(MANY, small)]
    raise LabError(
        f'"{codec}" leaves {flat:,} elements dense, so its speed cannot be measured by them: leave it out'
    )


@dataclass(frozen=True)
class _Phase:
    """A phase of a codec: its first step, and its share of all steps."""

    name: str
    first: int
    share: float


@lru_cache(maxsize=64)
def _phases(codec: str) -> tuple[_Phase, ...]:
    made = parse(codec)
    names = [made.phase(step) for step in range(HORIZON)]
    return tuple(
        _Phase(name, names.index(name), count / len(names)) for name, count in Counter(names).items()
    )


class _Bench:
    """An engine with one bucket, ready to be run in any phase."""

    def __init__(self, codec: str, route: str | None, load: Load, group: Group, device: torch.device) -> None:
        self.codec, self.load, self.group, self.device = codec, load, group, device
        self.echo = EchoGroup(group.rank, group.size)
        model = Model(load.specs)
        plan = Plan.of(Policy.of(codec, keep_dense=(), min_numel=0), model, group.size, route=route)
        self.engine = Engine(plan, self.echo, device, error_every=0)
        generator = torch.Generator().manual_seed(group.rank)
        self.gradient = torch.randn(load.numel, generator=generator).to(device)
        self.bucket = Bucket(torch.empty_like(self.gradient), Layout.packed(load.specs))

    def run(self, window_s: float) -> dict[str, Timed]:
        """Every phase once, in order, so that later ones know what earlier ones learn; then each timed."""
        phases = _phases(self.codec)
        for phase in phases:
            self._step(phase.first)
        timed = [phase for phase in phases if phase.share >= RARE]
        return {phase.name: self._timed(phase.first, window_s / len(timed)) for phase in timed}

    def _timed(self, finite_steps: int, window_s: float) -> Timed:
        barrier(self.group, self.device)
        start, runs = time.perf_counter(), 0
        sums = dict.fromkeys(STAGES, 0.0)
        while runs < MIN_RUNS or time.perf_counter() - start < window_s:
            for stage, seconds in self._step(finite_steps).items():
                sums[stage] += seconds
            runs += 1
        return Timed(self.load, {stage: seconds / runs for stage, seconds in sums.items()})

    def _step(self, finite_steps: int) -> dict[str, float]:
        self.bucket.buffer.copy_(self.gradient)
        synchronize(self.device)
        before, echoed = dict(self.engine.clock.seconds), self.echo.seconds
        start = time.perf_counter()
        self.engine.finite_steps = finite_steps
        self.engine.exchange(self.bucket)
        self.engine.end_step()
        synchronize(self.device)
        total = time.perf_counter() - start - (self.echo.seconds - echoed)
        stages = {s: self.engine.clock.seconds[s] - before[s] for s in STAGES[1:]}
        return {"rest": max(0.0, total - sum(stages.values())), **stages}


def _contends(group: Group, device: torch.device) -> float:
    """Of a second of a codec's work, the seconds that it takes from another thread of the same worker.

    Every rank runs one thread, then two: if two get no more done than one, what one does the other lacks. On
    a GPU both would run on the device: 1.
    """
    if device.type == "cuda":
        return 1.0
    chores = Chore(), Chore()
    barrier(group, device)
    alone = chores[0].rate(SPIN_S)
    barrier(group, device)
    other: list[float] = []
    _, whole_s, rounds = chores[0].beside(lambda: other.append(chores[1].rate(SPIN_S)))
    both = rounds / whole_s + other[0]
    return min(1.0, max(0.0, 2.0 - both / alone))

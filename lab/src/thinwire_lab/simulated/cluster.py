"""A simulated cluster: links with token buckets below a group, and training steps in simulated time.

Shares no formula with `thinwire.perf`: the model under test must not be its own judge. One rank stands for
all: the slowest, for whom the others wait in every collective.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.groups.base import FailureReport, Group, Pending

COPIED_BYTES = 1 << 12  # of longer messages the simulation needs no content
_LEVELS = {"qsgd:8": 127.0, "qsgd:4": 7.0, "terngrad:1": 1.0, "terngrad": 1.0, "rotated": 1.0}
PART_NUMEL, MOST_PARTS = 1 << 20, 4  # a bucket travels in parts, so that coding and travel overlap
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Wire:
    """What every host's connection does: after a burst at `peak`, `bytes_per_s`; the slowest host counts."""

    latency_s: float
    bytes_per_s: float
    burst_bytes: float = 0.0
    peak_bytes_per_s: float = math.inf
    jitter: float = 0.0  # of the latency, its mean
    cpu_s_per_byte: float = 0.0  # what a core does to move one


class SimulatedClock:
    """Simulated seconds."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SimulatedNetwork:
    """Collectives of `workers` hosts on a wire; `rng` None: no noise, jitter as its mean."""

    def __init__(self, wire: Wire, workers: int, rng: random.Random | None) -> None:
        self.wire, self.workers, self._rng = wire, workers, rng
        self._tokens, self._at = wire.burst_bytes, 0.0

    def change(self, wire: Wire) -> None:
        self.wire = wire
        self._tokens = min(self._tokens, wire.burst_bytes)

    def collective(self, kind: str, nbytes: float, start: float) -> float:
        """Seconds of a collective that begins at `start`, whose buffer (or own payload) has n bytes."""
        n, p = nbytes, self.workers
        if kind == "all_reduce":  # reduce-scatter and all-gather around a ring
            hops, sent = 2 * (p - 1), 2 * n * (p - 1) / p
        elif kind == "all_gather":
            hops, sent = (p - 1, n * (p - 1)) if n > 16384 else (1, n * (p - 1))
        elif kind == "all_to_all":
            hops, sent = 1, n * (p - 1) / p
        elif kind == "all_reduce_max":
            hops, sent = (1, n * (p - 1)) if n <= 16384 else (2 * (p - 1), 2 * n * (p - 1) / p)
        else:
            raise AssertionError(kind)
        late = sum(self._hop() for _ in range(hops)) if hops < 4 else hops * self._hop(hops)
        return late + self._push(sent, start) + sent * self.wire.cpu_s_per_byte

    def _hop(self, of: int = 1) -> float:
        """One latency, or the mean of many."""
        wire = self.wire
        mean = wire.jitter * wire.latency_s
        if self._rng is None or not mean:
            return wire.latency_s + mean
        return wire.latency_s + mean * self._rng.gammavariate(of, 1 / of)

    def _push(self, nbytes: float, start: float) -> float:
        """Seconds until the connection has taken so many bytes: what tokens allow at once, then the rest."""
        wire = self.wire
        self._tokens = min(wire.burst_bytes, self._tokens + max(0.0, start - self._at) * wire.bytes_per_s)
        burst = min(nbytes, self._tokens)
        self._tokens -= burst
        taken = burst / wire.peak_bytes_per_s + (nbytes - burst) / wire.bytes_per_s
        self._at = start + taken
        return taken


class SimulatedGroup(Group):
    """Collectives take simulated time; every peer has what this rank has."""

    def __init__(self, network: SimulatedNetwork, clock: SimulatedClock) -> None:
        self.rank, self.size = 0, network.workers
        self._network, self._clock = network, clock

    def all_reduce(self, tensor: Tensor) -> Pending:
        return self._take("all_reduce", tensor.nbytes)

    def all_reduce_max(self, words: Tensor) -> Pending:
        return self._take("all_reduce_max", words.nbytes)

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        return self._take("all_to_all", send.nbytes)

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        if send.nbytes <= COPIED_BYTES:
            receive.view(self.size, -1).copy_(send.view(-1).expand(self.size, -1))
        return self._take("all_gather", send.nbytes)

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        return {self.rank: failure}

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    def _take(self, kind: str, nbytes: int) -> Pending:
        end = self._clock.now + self._network.collective(kind, nbytes, self._clock.now)
        return _Arrival(self._clock, end)


@dataclass(frozen=True)
class _Arrival:
    clock: SimulatedClock
    end: float

    def wait(self) -> None:
        self.clock.now = max(self.clock.now, self.end)


@dataclass(frozen=True)
class Tensors:
    """One bucket: elements that a codec may take, elements that stay dense, and the sides of its matrices."""

    coded: int
    dense: int
    sides: int  # rows + columns, of all its matrices


@dataclass(frozen=True)
class Cost:
    """A codec: bytes an element there and back, nanoseconds an element to encode, merge and decode.

    `gathers`: every rank decodes all payloads. `reduces`: payloads add up in an all-reduce.
    """

    out_bytes: float
    encode_ns: float
    decode_ns: float
    payload_ns: float = 0.0
    gathers: bool = False
    reduces: bool = False
    agrees: bool = False


def _sum_bytes(levels: float, workers: int) -> float:
    return math.log2(2 * levels * workers + 1) / 8


# Bits from what the codecs are; nanoseconds of the order that docs/background/speed.md shows for one core.
COSTS: Mapping[str, Cost] = {
    "fp16": Cost(2.0, 0.35, 0.35, reduces=True, agrees=True),
    "bf16": Cost(2.0, 0.35, 0.35, reduces=True),
    "qsgd:8": Cost(1.01, 0.9, 0.4, 0.1, agrees=True),
    "qsgd:4": Cost(0.51, 0.9, 0.4, 0.1, agrees=True),
    "terngrad:1": Cost(0.2, 1.3, 0.4, 0.1, agrees=True),
    "terngrad": Cost(0.2, 0.9, 0.4, 0.1, agrees=True),
    "rotated": Cost(0.2, 0.9, 0.6, 0.1, agrees=True),
    "fft:0.85": Cost(0.23, 6.0, 4.0, 0.3, gathers=True),
    "sign": Cost(0.125, 1.0, 0.1, 0.2, gathers=True),
    "topk:0.01": Cost(0.05, 2.0, 0.3, 0.15, gathers=True),
    "powersgd:4": Cost(0.0, 1.5, 0.7, reduces=True),
}


@dataclass(frozen=True)
class Job:
    """What is trained, on one worker: seconds of the passes, buckets and when each is ready."""

    rest_s: float
    backward_s: float
    buckets: tuple[Tensors, ...]
    codec_speed: float = 1.0  # times as long as COSTS say: slow or busy cores
    contends: float = 0.5  # of a second of coding, what the backward pass loses

    @property
    def ready_s(self) -> tuple[float, ...]:
        """When each bucket is ready, in seconds after the first: evenly over the backward pass."""
        last = max(1, len(self.buckets) - 1)
        return tuple(self.backward_s * k / last for k in range(len(self.buckets)))


def step(
    job: Job,
    text: str,
    network: SimulatedNetwork,
    now: float,
    slower: float = 1.0,
    ready: Callable[[float], None] = lambda _: None,
) -> float:
    """Plays one step from its first bucket on; gives the time at which all means are there.

    `slower`: this step's noise in computing. Buckets are served in order; `ready` hears when each is there.
    """
    free, lost = now, 0.0
    for index, (bucket, after) in enumerate(zip(job.buckets, job.ready_s, strict=True)):
        there = now + slower * after + lost
        if index:
            ready(there)
        begin = max(free, there)
        if text == "dense":
            free = begin + network.collective("all_reduce", 4 * (bucket.coded + bucket.dense), begin)
        else:
            free, coding_s = _exchange(job, COSTS[text], _LEVELS.get(text, 0.0), bucket, network, begin)
            lost += job.contends * coding_s
    return max(free, now + slower * job.backward_s + lost)


def _exchange(
    job: Job, cost: Cost, levels: float, bucket: Tensors, network: SimulatedNetwork, begin: float
) -> tuple[float, float]:
    """One bucket through a codec: when it is done, and the seconds of coding in it."""
    p, n = network.workers, bucket.coded
    now = begin
    if cost.agrees and n:
        now += network.collective("all_reduce_max", 4 * max(1, n // 512), now)
    sharded = not cost.gathers and not cost.reduces
    beside = bucket.dense if sharded and n else 0  # whole numbers that travel in the same messages
    if bucket.dense and not beside:  # whole numbers beside a codec: shares to their owners, sums back
        now += network.collective("all_to_all", 4 * bucket.dense, now)
        now += network.collective("all_gather", 4 * bucket.dense / p, now)
    if not n:
        return now, 0.0
    encode_s = 1e-9 * job.codec_speed * cost.encode_ns * n
    payloads = p if cost.gathers else 1 if cost.reduces else p / p + 1
    decode_s = 1e-9 * job.codec_speed * (cost.decode_ns + cost.payload_ns * payloads) * n
    coded, wire = now, now
    parts = min(MOST_PARTS, -(-n // PART_NUMEL))
    for _ in range(parts):
        coded += encode_s / parts
        wire = max(wire, coded)
        if cost.reduces:
            out = 4 * 4 * bucket.sides if not cost.out_bytes else cost.out_bytes * n
            wire += network.collective("all_reduce", out / parts, wire)
        elif cost.gathers:
            wire += network.collective("all_gather", cost.out_bytes * n / parts, wire)
        else:
            wire += network.collective("all_to_all", (cost.out_bytes * n + 4 * beside) / parts, wire)
            back = (_sum_bytes(levels, p) * n + 4 * beside) / p
            wire += network.collective("all_gather", back / parts, wire)
    return max(wire + decode_s / parts, coded + decode_s), encode_s + decode_s


def expected_step_s(job: Job, text: str, wire: Wire, workers: int, steps: int = 16) -> float:
    """Seconds of a step in the long run, without noise: token buckets as full as such steps leave them."""
    network = SimulatedNetwork(replace(wire), workers, None)
    network._tokens = 0.0
    now, ends = 0.0, []
    for _ in range(steps):
        now = step(job, text, network, now) + job.rest_s
        ends.append(now)
    half = steps // 2
    return (ends[-1] - ends[half - 1]) / (steps - half)

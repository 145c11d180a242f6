"""The probe of a link: how long the collectives of a real group take, and what of that a processor does."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from thinwire.groups.base import SMALL_BYTES, Group, Pending
from thinwire.perf.calibration import Calibration, machine_kind
from thinwire.perf.collectives import ALL_GATHER, ALL_REDUCE, ALL_REDUCE_HALF, ALL_TO_ALL, BROADCAST
from thinwire.perf.link import LinkModel, Timing
from thinwire.perf.probing import (
    CPU,
    Chore,
    barrier,
    first_bytes,
    largest,
    medians,
    refuse_one,
    synchronize,
)

SECONDS = 1.0  # for all kinds together, about
SENT_BYTES: tuple[int, ...] = (
    2 << 10,
    32 << 10,
    512 << 10,
    4 << 20,
    16 << 20,
)  # by one worker, in acts of every kind
FLOOD_S = 0.3  # acts one behind the other until a token bucket is empty
FLOOD_BYTES = 64 << 10  # of the first of them; each is GROWTH times as long, up to the longest of SENT_BYTES
GROWTH = 4
BURST = 1.5  # times as quick as the last act: that was a burst
NOISE = 0.01  # of a flood: less that went through beyond its speed is no burst
LONG_S = 0.06  # what the longest act of a kind should take at least, where such acts are allowed
MIN_REPEATS, MAX_REPEATS = 2, 25
ENOUGH_S = 0.5  # of an act that takes so long one is enough
SPIN_S = 0.05

Clock = Callable[[], float]


@dataclass(frozen=True)
class _Kind:
    """A kind of act: bytes that a worker sends for each byte of the act, and how to start one."""

    sent: Callable[[int], float]  # by the number of workers
    start: Callable[[Group, Tensor, Tensor], Pending]


_KINDS: Mapping[str, _Kind] = MappingProxyType(
    {
        ALL_REDUCE: _Kind(lambda p: 2 * (p - 1) / p, lambda g, x, _: g.all_reduce(x.view(torch.float32))),
        ALL_REDUCE_HALF: _Kind(
            lambda p: 2 * (p - 1) / p, lambda g, x, _: g.all_reduce(x.view(torch.float16))
        ),
        ALL_TO_ALL: _Kind(
            lambda p: (p - 1) / p,
            lambda g, x, room: g.all_to_all(x.view(g.size, -1), room[: x.numel()].view(g.size, -1)),
        ),
        ALL_GATHER: _Kind(
            lambda p: p - 1,
            lambda g, x, room: g.all_gather(x, room[: g.size * x.numel()].view(g.size, -1)),
        ),
        BROADCAST: _Kind(lambda _: 1.0, lambda g, x, _: g.broadcast(x)),
    }
)
EXCHANGE = (ALL_REDUCE, ALL_REDUCE_HALF, ALL_TO_ALL, ALL_GATHER)  # what workers and leaders do
INSIDE = (ALL_REDUCE, ALL_TO_ALL, ALL_GATHER, BROADCAST)  # what the workers of a node do


def probe_link(
    group: Group,
    device: torch.device = CPU,
    seconds: float = SECONDS,
    company: bool = True,
    kinds: Sequence[str] = EXCHANGE,
    clock: Clock = time.perf_counter,
) -> Calibration:
    """Collective: latency and bandwidth of each collective the engine uses, in about `seconds`.

    1. all-reduces one behind the other, FLOOD_S or longer: many networks let short bursts through at full
       speed (token buckets), and what counts in training is the speed behind them
    2. of each kind acts of growing size, up to one that takes LONG_S; medians over repeats, then the slowest
       rank's, for whom all others wait
    3. in `company`, the same while every rank computes: acts then wait for their turns on the cores, and hold
       up computing. Where many workers share few cores this takes several times as long as asked for
    """
    refuse_one(group)
    barrier(group, device)
    speed = _flood(group, device, clock)
    timings = tuple(
        _timing(group, device, kind, seconds / len(kinds), company, speed, clock) for kind in kinds
    )
    (made_s,) = medians(group, [time.time()], device)
    machine = first_bytes(group, machine_kind().encode(), device).decode()
    link = replace(_link(timings, group.size), burst_bytes=speed.burst_bytes)
    return Calibration(link, group.size, machine, made_s)


@dataclass(frozen=True)
class _Speed:
    """What a flood found: seconds of a short all-reduce, bytes a second in a long one, and how long that was.

    `burst_bytes`: what went through beyond that speed, from a token bucket that was full.
    """

    short_s: float
    bytes_per_s: float
    sent_bytes: int
    burst_bytes: float


def _flood(group: Group, device: torch.device, clock: Clock) -> _Speed:
    """All-reduces, each GROWTH times as long as the one before: until FLOOD_S are over and bytes count.

    The first ones may go at the speed of a burst, or take no longer than their latency.
    """
    sent: list[int] = []
    taken: list[float] = []

    def send(size: int) -> float:
        calls = _Calls(group, device, ALL_REDUCE, _call_bytes(ALL_REDUCE, size, group.size), clock)
        taken.extend(largest(group, [max(1e-9, calls.call())], device))
        sent.append(size)
        return size / taken[-1]

    size, quickest = FLOOD_BYTES, 0.0
    while True:
        rate = send(size)
        if sum(taken) >= FLOOD_S and (taken[-1] > 2 * taken[0] or size == SENT_BYTES[-1]):
            break
        quickest = max(quickest, rate)
        size = min(GROWTH * size, SENT_BYTES[-1])
    if rate < quickest / BURST:  # a burst ended within this act: the next one shows what follows it
        send(size // GROWTH)
    short_s = min(taken)
    rate = sent[-1] / max(taken[-1] - short_s, taken[-1] / 2)
    in_time = rate * sum(max(0.0, s - short_s) for s in taken[1:])
    burst = sum(sent[1:]) - in_time
    return _Speed(short_s, rate, size, burst if burst > NOISE * sum(sent) else 0.0)


def _link(timings: tuple[Timing, ...], world: int) -> LinkModel:
    """The plain link whose ring all-reduce and straight messages take as long as those measured."""
    ring, straight = timings[0], next(timing for timing in timings if timing.kind == ALL_TO_ALL)
    bytes_per_s = 2 * (world - 1) / world * ring.bytes_per_s
    latency = max(straight.latency_s, ring.latency_s / (2 * (world - 1)))
    return LinkModel(
        "measured", latency, bytes_per_s, source="measured over the group itself", timings=timings
    )


def _sizes(speed: _Speed, seconds: float) -> list[int]:
    """What a worker sends in the acts of each kind: up to what takes LONG_S, or as long as a short act."""
    most = speed.bytes_per_s * max(LONG_S, speed.short_s, seconds / 10)
    longest = min(SENT_BYTES[-1], max(SENT_BYTES[1], int(most)))
    return [*(size for size in SENT_BYTES if 2 * size < longest), longest]


def _timing(
    group: Group, device: torch.device, kind: str, seconds: float, company: bool, speed: _Speed, clock: Clock
) -> Timing:
    """Acts of growing size, alone and in company."""
    listed = (_call_bytes(kind, sent, group.size) for sent in _sizes(speed, seconds))
    sizes = list(dict.fromkeys(listed))
    taken = [_timed(group, device, kind, size, seconds / 6 / len(sizes), clock) for size in sizes]
    beyond = _call_bytes(kind, speed.sent_bytes, group.size)
    if beyond > sizes[-1]:  # short acts may all pass as bursts: long ones go on at the speed of the flood
        more_s = _KINDS[kind].sent(group.size) * (beyond - sizes[-1]) / speed.bytes_per_s
        sizes.append(beyond)
        taken.append(taken[-1] + more_s)
    if device.type == "cuda" or not company:  # the processors of a GPU do not move the bytes
        return Timing.of(kind, sizes, taken)
    chore = Chore()
    alone = _rate(group, chore)
    pairs: list[tuple[float, float]] = []
    for index, (size, one) in enumerate(zip(sizes, taken, strict=True)):
        scale = one / taken[max(0, index - 1)]
        busy_s, lost_s = pairs[-1] if pairs else (0.0, 0.0)
        if MIN_REPEATS * scale * busy_s < seconds:
            pairs.append(_in_company(group, kind, size, chore, alone, seconds / 10))
        else:  # it would take too long: as many times what it takes alone as the size before
            pairs.append((scale * busy_s, scale * lost_s))
    busy, lost = zip(*pairs, strict=True)
    return Timing.of(kind, sizes, taken, busy, lost)


def _call_bytes(kind: str, sent: int, world: int) -> int:
    """The act in which a worker sends so much; whole floats a rank, and no all-gather that goes straight."""
    size = int(sent / _KINDS[kind].sent(world))
    least = SMALL_BYTES + 1 if kind == ALL_GATHER else 1
    unit = 4 * world
    return unit * math.ceil(max(size, least) / unit)


class _Calls:
    """Acts of one kind and size, one behind the other."""

    def __init__(
        self, group: Group, device: torch.device, kind: str, size: int, clock: Clock = time.perf_counter
    ) -> None:
        self.group, self.device, self.kind, self.clock = group, device, _KINDS[kind], clock
        zeros = np.zeros(size, np.uint8)  # pages that nobody writes to cost nothing, unlike torch.zeros
        self.buffer = torch.from_numpy(zeros).to(device)
        room = size * (group.size if kind == ALL_GATHER else 1)
        self.room = torch.empty(room, dtype=torch.uint8, device=device)

    def call(self) -> float:
        start = self.clock()
        self.kind.start(self.group, self.buffer, self.room).wait()
        synchronize(self.device)
        return self.clock() - start


def _timed(group: Group, device: torch.device, kind: str, size: int, seconds: float, clock: Clock) -> float:
    """The median act of so many bytes; what all ranks found out so far says how often it is repeated."""
    calls = _Calls(group, device, kind, size, clock)
    barrier(group, device)
    (first,) = largest(group, [calls.call()], device)
    if first > ENOUGH_S:
        return first
    repeats = max(MIN_REPEATS, min(MAX_REPEATS, int(seconds / max(first, 1e-6))))
    barrier(group, device)
    return largest(group, [statistics.median(calls.call() for _ in range(repeats))], device)[0]


def _rate(group: Group, chore: Chore) -> float:
    """Rounds a second that a worker computes while all do."""
    chore.round()
    barrier(group)
    return medians(group, [chore.rate(SPIN_S)])[0]


def _in_company(
    group: Group, kind: str, size: int, chore: Chore, rate: float, seconds: float
) -> tuple[float, float]:
    """Mean seconds of an act while all workers compute, and by how much it holds that up.

    Where workers share cores a short act may take a hundred times as long as alone: a few say how many fit.
    """
    calls = _Calls(group, CPU, kind, size)

    def beside(repeats: int) -> tuple[float, float]:
        barrier(group)
        taken_s, whole_s, rounds = chore.beside(lambda: [calls.call() for _ in range(repeats)])
        busy, lost = medians(group, [taken_s / repeats, (whole_s - rounds / rate) / repeats])
        return busy, lost

    few = beside(MIN_REPEATS)
    repeats = min(MAX_REPEATS, int(seconds / max(few[0], 1e-3)))
    return beside(repeats) if repeats > MIN_REPEATS else few

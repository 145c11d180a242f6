"""The probe of a link: how long the collectives of a real group take, and what of that a processor does."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.groups.base import SMALL_BYTES, Group, Pending
from thinwire.perf.calibration import Calibration
from thinwire.perf.chore import Chore
from thinwire.perf.link import Link
from thinwire.perf.machine import machine_kind
from thinwire.perf.pace import Pace
from thinwire.perf.together import (
    CPU,
    barrier,
    first_bytes,
    medians,
    refuse_one,
    synchronize,
)
from thinwire.perf.traffic import ALL_GATHER, ALL_REDUCE, ALL_REDUCE_HALF, ALL_TO_ALL, BROADCAST

SECONDS = 1.0  # for all kinds together, about
SENT_BYTES = (2 << 10, 32 << 10, 512 << 10, 4 << 20, 16 << 20)  # by one worker, in acts of every kind
MIN_REPEATS, MAX_REPEATS = 2, 25
NOISE = 1.3  # a size that takes so many times what the shortest takes is longer; less may be chance
SPIN_S = 0.05


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
) -> Calibration:
    """Collective: latency and bandwidth of each collective the engine uses, in about `seconds`.

    1. of each kind acts of growing size, as far as its share of the time goes; medians, first over repeats,
       then over ranks
    2. in `company`, the same while every rank computes: acts then wait for their turns on the cores, and hold
       up computing. Where many workers share few cores this takes several times as long as asked for
    """
    refuse_one(group)
    barrier(group, device)
    paces = tuple(_pace(group, device, kind, seconds / len(kinds), company) for kind in kinds)
    (made_s,) = medians(group, [time.time()], device)
    machine = first_bytes(group, machine_kind().encode(), device).decode()
    return Calibration(_link(paces, group.size), group.size, machine, made_s)


def _link(paces: tuple[Pace, ...], world: int) -> Link:
    """The plain link whose ring all-reduce and straight messages take as long as those measured."""
    ring, straight = paces[0], next(pace for pace in paces if pace.kind == ALL_TO_ALL)
    bytes_per_s = 2 * (world - 1) / world * ring.bytes_per_s
    latency = max(straight.latency_s, ring.latency_s / (2 * (world - 1)))
    return Link("measured", latency, bytes_per_s, source="measured over the group itself", paces=paces)


def _pace(group: Group, device: torch.device, kind: str, seconds: float, company: bool) -> Pace:
    """Acts of growing size until the next would not fit; two sizes at least, else there is no bandwidth."""
    sizes: list[int] = []
    taken: list[float] = []
    for size in dict.fromkeys(_act_bytes(kind, sent, group.size) for sent in SENT_BYTES):
        expected = _expected(sizes, taken, size)
        if len(sizes) > 1 and 3 * MIN_REPEATS * expected > seconds:  # alone, and in company twice as long
            break
        taken.append(_timed(group, device, kind, size, seconds / 6))
        sizes.append(size)
    if device.type == "cuda" or not company:  # the processors of a GPU do not move the bytes
        return Pace.of(kind, sizes, taken)
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
    return Pace.of(kind, sizes, taken, busy, lost)


def _expected(sizes: list[int], taken: list[float], size: int) -> float:
    """Along the line from the smallest size to the last: the same on all ranks."""
    if len(sizes) < 2:
        return 0.0
    slope = max(0.0, taken[-1] - NOISE * taken[0]) / (sizes[-1] - sizes[0])
    return taken[-1] + slope * (size - sizes[-1])


def _act_bytes(kind: str, sent: int, world: int) -> int:
    """The act in which a worker sends so much; whole floats a rank, and no all-gather that goes straight."""
    size = int(sent / _KINDS[kind].sent(world))
    least = SMALL_BYTES + 1 if kind == ALL_GATHER else 1
    unit = 4 * world
    return unit * math.ceil(max(size, least) / unit)


class _Acts:
    """Acts of one kind and size, one behind the other."""

    def __init__(self, group: Group, device: torch.device, kind: str, size: int) -> None:
        self.group, self.device, self.kind = group, device, _KINDS[kind]
        self.buffer = torch.zeros(size, dtype=torch.uint8, device=device)
        room = size * (group.size if kind == ALL_GATHER else 1)
        self.room = torch.empty(room, dtype=torch.uint8, device=device)

    def act(self) -> float:
        start = time.perf_counter()
        self.kind.start(self.group, self.buffer, self.room).wait()
        synchronize(self.device)
        return time.perf_counter() - start


def _timed(group: Group, device: torch.device, kind: str, size: int, seconds: float) -> float:
    """The median act of so many bytes; what all ranks found out so far says how often it is repeated."""
    acts = _Acts(group, device, kind, size)
    barrier(group, device)
    (first,) = medians(group, [acts.act()], device)
    repeats = max(MIN_REPEATS, min(MAX_REPEATS, int(seconds / max(first, 1e-6))))
    barrier(group, device)
    return medians(group, [statistics.median(acts.act() for _ in range(repeats))], device)[0]


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
    acts = _Acts(group, CPU, kind, size)

    def beside(repeats: int) -> tuple[float, float]:
        barrier(group)
        taken_s, whole_s, rounds = chore.beside(lambda: [acts.act() for _ in range(repeats)])
        busy, lost = medians(group, [taken_s / repeats, (whole_s - rounds / rate) / repeats])
        return busy, lost

    few = beside(MIN_REPEATS)
    repeats = min(MAX_REPEATS, int(seconds / max(few[0], 1e-3)))
    return beside(repeats) if repeats > MIN_REPEATS else few

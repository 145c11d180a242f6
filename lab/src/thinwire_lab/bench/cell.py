"""A cell of a grid (a model, a rate, a number of workers), its job, and the timing that benches share."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

import thinwire as tw
from thinwire.errors import LabError
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Spec
from thinwire_lab.net.iproute import read_counters
from thinwire_lab.net.netlab import INTERFACE

AUTO = "auto"  # tw.compress(model, "auto"), trained until it has decided
AUTO_QUALITY = "aggressive"  # what it may take there: all that can be measured
BASE, AGAIN = "ddp", "ddp-again"  # plain DDP, twice: their difference is what chance does
CODECS = ("fp16", "terngrad", "qsgd:4", "gradiveq:8", "topk:0.01")
Record = dict[str, Any]


def sent_bytes() -> int:
    """Payload bytes sent by this host's interface so far; 0 where it has none of its own (loopback)."""
    if os.environ.get("GLOO_SOCKET_IFNAME") != INTERFACE:
        return 0
    return read_counters(INTERFACE).tx_payload_bytes


def timed(act: Callable[[], None]) -> tuple[float, float]:
    """The slowest worker's seconds, and the bytes this worker's interface sent (0 without counters)."""
    dist.barrier()
    before = sent_bytes()
    start = time.perf_counter()
    act()
    seconds = torch.tensor(time.perf_counter() - start)
    dist.barrier()  # what is still queued in the kernel leaves before the counters are read
    nbytes = sent_bytes() - before
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item(), float(nbytes)


def gradient_spec(codec: str, numel: int) -> Spec:
    """A vector, or the squarest matrix of that many elements if the codec leaves vectors dense.

    >>> gradient_spec("powersgd:4", 6_553_600).shape
    (2560, 2560)
    """
    rows = next(rows for rows in range(math.isqrt(numel), 0, -1) if numel % rows == 0)
    specs = [Spec("x", (numel,)), Spec("x", (rows, numel // rows))]
    refusals = [tw.parse(codec).refuses(spec) for spec in specs]
    for spec, refusal in zip(specs, refusals, strict=True):
        if refusal is None:
            return spec
    raise LabError(f'"{codec}" leaves {numel:,} elements dense ({refusals[0]}): choose another --numel')


def bench_plan(codec: str, numel: int, world: int) -> Plan:
    return Plan.of(Policy.of(codec, keep_dense=()), Model((gradient_spec(codec, numel),)), world)


@dataclass(frozen=True)
class Cell:
    """A setting to measure in. `rate` None: the link is not shaped. `busy`: two busy loops run beside it.

    `latency`: the round trip that netlab adds.
    """

    model: str
    rate: str | None
    workers: int
    busy: bool = False
    latency: str | None = None

    @property
    def name(self) -> str:
        beside = ", busy" if self.busy else ""
        return f"{self.model}, {self.link}, {self.workers} workers{beside}"

    @property
    def link(self) -> str:
        """Rate and latency."""
        trip = "" if self.latency is None else f", {self.latency}"
        return (self.rate or "unshaped") + trip

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Cell:
        required = record["model"], record["rate"], record["workers"]
        return cls(*required, record.get("busy", False), record.get("latency"))


@dataclass(frozen=True)
class CellJob:
    """The job of the workers of a cell."""

    model: str
    rate: str | None
    workers: int
    codecs: tuple[str, ...]
    others: tuple[str, ...]  # hooks that are timed and not forecast
    batch: int
    seconds: float  # for timing, about
    min_repeats: int
    max_repeats: int
    probe_s: float

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CellJob:
        lists = {name: tuple(values[name]) for name in ("codecs", "others")}
        return cls(**{**values, **lists})


def cells(models: Sequence[str], rates: Sequence[str | None], workers: Sequence[int]) -> list[Cell]:
    """The grid, its quick cells first: fast links before slow ones, few workers before many."""
    return [
        Cell(model, rate, count)
        for count in workers
        for rate in reversed(rates)
        for model in reversed(models)
    ]

"""Links between workers and the topology of a cluster: alpha and beta of the alpha-beta model."""

from __future__ import annotations

import difflib
import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from types import MappingProxyType
from typing import Any

from thinwire.errors import LabError
from thinwire.texts import parse_rate

STEEPEST = 8.0  # beyond the longest act: times its own bytes per second


@dataclass(frozen=True)
class Timing:
    """Seconds by bytes of an act, straight lines between what was measured and on beyond the last.

    Where processors move the bytes no single latency and bandwidth describes all collectives: a ring of
    8 workers on 2 cores walks 14 hops, and each is a turn of the scheduler. Below the smallest size it is
    the smallest one's time.

    `busy_s` is the same while all workers compute: an act then waits for its turns on the cores. `lost_s` is
    how long it holds up what they compute. Empty: nobody looked, an act takes what it takes alone.

    >>> Timing("all_reduce", (1000, 2000), (0.5, 1.0)).seconds(4000)
    2.0
    """

    kind: str
    nbytes: tuple[int, ...]
    taken_s: tuple[float, ...]
    busy_s: tuple[float, ...] = ()
    lost_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.nbytes or len(self.nbytes) != len(self.taken_s):
            raise LabError(
                f"timing of {self.kind}: {len(self.nbytes)} sizes and {len(self.taken_s)} times must be "
                "equally many, and at least one"
            )
        if list(self.nbytes) != sorted(set(self.nbytes)) or min(self.taken_s) < 0:
            raise LabError(f"timing of {self.kind}: sizes must grow and times be 0 or above: measure anew")

    @classmethod
    def of(
        cls,
        kind: str,
        nbytes: Sequence[int],
        taken_s: Sequence[float],
        busy_s: Sequence[float] = (),
        lost_s: Sequence[float] = (),
    ) -> Timing:
        """From measurements; more bytes never take less time, and company never saves any, noise or not."""
        alone = _rising(taken_s)
        busy = _rising([max(pair) for pair in zip(busy_s, alone, strict=False)])
        lost = _rising([min(max(0.0, one), most) for one, most in zip(lost_s, busy, strict=False)])
        return cls(kind, tuple(nbytes), alone, busy, lost)

    @property
    def busy(self) -> Timing:
        """How long acts take while all workers compute."""
        return replace(self, taken_s=self.busy_s or self.taken_s, busy_s=(), lost_s=())

    @property
    def lost(self) -> Timing | None:
        """How long acts hold up what workers compute, if that was measured."""
        return replace(self, taken_s=self.lost_s, busy_s=(), lost_s=()) if self.lost_s else None

    @property
    def latency_s(self) -> float:
        """What the shortest act takes."""
        return self.taken_s[0]

    @property
    def bytes_per_s(self) -> float:
        """What acts longer than the longest measured one gain by more time: the slope of the last line.

        A slope between two acts that took about as long says nothing (noise, a token bucket that let both
        through): it never counts for more than STEEPEST times what the longest act reached.
        """
        if self.taken_s[-1] == 0:
            return float("inf")
        reached = STEEPEST * self.nbytes[-1] / self.taken_s[-1]
        if len(self.nbytes) < 2 or self.taken_s[-1] == self.taken_s[-2]:
            return reached
        return min(reached, (self.nbytes[-1] - self.nbytes[-2]) / (self.taken_s[-1] - self.taken_s[-2]))

    def scaled(self, factor: float) -> Timing:
        """The same acts, each taking so many times as long."""
        times = (tuple(factor * s for s in values) for values in (self.taken_s, self.busy_s, self.lost_s))
        return Timing(self.kind, self.nbytes, *times)

    def seconds(self, nbytes: float) -> float:
        if nbytes <= self.nbytes[0]:
            return self.taken_s[0]
        if nbytes >= self.nbytes[-1]:
            return self.taken_s[-1] + (nbytes - self.nbytes[-1]) / self.bytes_per_s
        right = bisect_right(self.nbytes, nbytes)
        (n0, n1), (t0, t1) = self.nbytes[right - 1 : right + 1], self.taken_s[right - 1 : right + 1]
        return t0 + (t1 - t0) * (nbytes - n0) / (n1 - n0)

    def to_json(self) -> dict[str, Any]:
        times = {name: list(getattr(self, name)) for name in ("taken_s", "busy_s", "lost_s")}
        return {"kind": self.kind, "nbytes": list(self.nbytes), **times}

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Timing:
        times = (tuple(map(float, made[name])) for name in ("taken_s", "busy_s", "lost_s"))
        return cls(str(made["kind"]), tuple(map(int, made["nbytes"])), *times)


def _rising(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(accumulate(values, max))


# Of 1538 bytes that an Ethernet frame takes (preamble and gap included) 1448 are payload of TCP.
TCP_SHARE = 1448 / 1538
# Not measured: what an exchange over TCP in one switched network usually sees. A probe replaces them.
TCP_LATENCY_S = 50e-6
TCP_MESSAGE_S = 5e-6
_UNITS_S = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


@dataclass(frozen=True)
class LinkModel:
    """One direction of a link: a message of n bytes takes `latency_s + n / bytes_per_s`.

    `message_s` is what each further message to another peer costs a sender that sends many at once: the part
    of the latency for which it is busy itself. All inputs, none of them measured here; `source` says whose.

    >>> round(1e3 * LinkModel("wire", 1e-3, 1e6).message(5000), 3)
    6.0
    """

    name: str
    latency_s: float
    bytes_per_s: float
    message_s: float = 0.0
    source: str = "given"
    burst_bytes: float = 0.0  # that a worker may send at once at a higher speed (a token bucket), as observed
    timings: tuple[
        Timing, ...
    ] = ()  # whole collectives of one group, as measured: they go before the formulas

    def __post_init__(self) -> None:
        if not self.bytes_per_s > 0:
            raise LabError(f"link {self.name}: bytes_per_s={self.bytes_per_s:g} must be above 0")
        if not (0 <= self.latency_s < math.inf and 0 <= self.message_s < math.inf):
            raise LabError(f"link {self.name}: latency_s and message_s must be 0 or above, and finite")

    def timing(self, kind: str) -> Timing | None:
        """How long a kind of act takes here, if that was measured."""
        return next((timing for timing in self.timings if timing.kind == kind), None)

    @property
    def busy(self) -> LinkModel:
        """The link while all workers compute; the same if that was not measured."""
        return replace(self, timings=tuple(timing.busy for timing in self.timings))

    def scaled(self, factor: float) -> LinkModel:
        """The link on which everything takes so many times as long."""
        return replace(
            self,
            latency_s=factor * self.latency_s,
            bytes_per_s=self.bytes_per_s / factor,
            message_s=factor * self.message_s,
            timings=tuple(timing.scaled(factor) for timing in self.timings),
        )

    def message(self, nbytes: float) -> float:
        """Seconds until one message of n bytes has arrived: alpha + n beta."""
        return self.latency_s + nbytes / self.bytes_per_s

    def straight(self, num_messages: float, nbytes: float) -> float:
        """Seconds until n bytes in several messages, sent at once to several peers, have arrived."""
        if num_messages <= 0:
            return 0.0
        return self.latency_s + (num_messages - 1) * self.message_s + nbytes / self.bytes_per_s


def _bus(name: str, gbytes: float, source: str) -> LinkModel:
    """A link inside a node: the data sheet's rate, four fifths of which are assumed to be reached."""
    return LinkModel(name, 10e-6, 0.8 * gbytes * 1e9, 1e-6, f"{source}, 80 % of it and 10 us assumed")


def _infiniband(name: str, gbit: float) -> LinkModel:
    return LinkModel(name, 5e-6, 0.9 * gbit * 1e9 / 8, 1e-6, f"{gbit:g} Gbit/s, 90 % of it and 5 us assumed")


LINKS: Mapping[str, LinkModel] = MappingProxyType(
    {
        link.name: link
        for link in (
            _bus("pcie", 15.75, "PCI Express 3.0 x16, 15.75 GB/s a direction"),
            _bus("pcie4", 31.5, "PCI Express 4.0 x16, 31.5 GB/s a direction"),
            _bus("nvlink1", 80, "NVLink of the P100, 80 GB/s a direction"),
            _bus("nvlink", 150, "NVLink of the V100, 150 GB/s a direction"),
            _bus("nvlink3", 300, "NVLink of the A100, 300 GB/s a direction"),
            _bus("nvlink4", 450, "NVLink of the H100, 450 GB/s a direction"),
            _infiniband("ib100", 100),
            _infiniband("ib200", 200),
            _infiniband("ib400", 400),
        )
    }
)


def link_named(text: str) -> LinkModel:
    """The link of a text: a name of LINKS, or a rate, which is taken as TCP over Ethernet.

    Behind a colon latency= overrules the named default.

    >>> link_named("1gbit:latency=2ms").latency_s
    0.002
    """
    name, colon, rest = text.strip().partition(":")
    link = LINKS.get(name.lower()) or _ethernet(name)
    if not colon:
        return link
    option, equals, value = rest.partition("=")
    if option.strip() != "latency" or not equals:
        raise LabError(f'link "{text}": behind the colon only latency= is known, as in "1gbit:latency=50us"')
    return replace(
        link, name=text.strip(), latency_s=_seconds(value, text), source=f"{link.source}; latency given"
    )


def _ethernet(name: str) -> LinkModel:
    try:
        rate = parse_rate(name)
    except LabError:
        close = difflib.get_close_matches(name, LINKS, 1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise LabError(
            f'there is no link "{name}": {hint}write a rate such as 1gbit or 100mbit, or one of '
            f"{', '.join(LINKS)}"
        ) from None
    source = f"{name} Ethernet, {TCP_SHARE:.0%} of it behind TCP/IP headers, 50 us assumed"
    return LinkModel(name, TCP_LATENCY_S, TCP_SHARE * rate / 8, TCP_MESSAGE_S, source)


def _seconds(text: str, where: str) -> float:
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(s|ms|us|ns)\s*", text)
    if match is None:
        raise LabError(f'link "{where}": latency={text} is no time: write a number with s, ms, us or ns')
    return float(match[1]) * _UNITS_S[match[2]]


@dataclass(frozen=True)
class Topology:
    """`nodes` times `gpus` workers; the workers of a node share its one connection to the others.

    >>> from thinwire.perf.link import link_named
    >>> Topology(128, 4, link_named("1gbit"), link_named("pcie")).workers
    512
    """

    nodes: int
    gpus: int
    inter: LinkModel  # between nodes: what one node sends, all its workers together
    intra: LinkModel  # inside a node: what one worker sends

    def __post_init__(self) -> None:
        for what, number in (("nodes", self.nodes), ("gpus", self.gpus)):
            if number < 1:
                raise LabError(f"{what}={number}: a cluster has at least one node with one GPU")

    @property
    def workers(self) -> int:
        return self.nodes * self.gpus

    @property
    def leaders(self) -> Topology:
        """One worker of every node."""
        return replace(self, gpus=1)

    @property
    def inside(self) -> Topology:
        """The workers of one node."""
        return replace(self, nodes=1)

    @property
    def link(self) -> LinkModel:
        """On which collectives of all its workers are measured: between nodes, if there are several."""
        return self.inter if self.nodes > 1 else self.intra

    @property
    def busy(self) -> Topology:
        """As its workers see it while all of them compute."""
        return replace(self, inter=self.inter.busy, intra=self.intra.busy)

    def with_nodes(self, nodes: int) -> Topology:
        return replace(self, nodes=nodes)

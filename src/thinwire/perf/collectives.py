"""Collectives in alpha-beta form: seconds until every worker of a topology has what it waits for.

With p workers in m nodes of g, a link's latency a and bytes per second b:

    all_reduce(n)    2 (p-1) (a + n / (p b))            a ring, its slowest link sets the pace
    all_gather(n)    (p-1) (a + n / b)                  a ring, n bytes a worker
    all_to_all(n)    a + (messages - 1) o + sent / b    straight to every peer, n bytes a worker in all:
                                                        a node sends g (p-g)/p n over its one connection
    ordered(n)       all_to_all(n) + all_gather(n / p)  a sum in rank order: shares to owners, sums back
    in a hierarchy   ordered inside, any of these between leaders, broadcast inside

A ring passes every node's connection once, whatever g is: workers are numbered node by node. An all-to-all
does not: g workers send at once. This is why `sharded` wants one worker a node, or leaders.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from thinwire.perf.link import Topology

ALL_REDUCE, ALL_TO_ALL, ALL_GATHER, ALL_REDUCE_MAX = (
    "all_reduce",
    "all_to_all",
    "all_gather",
    "all_reduce_max",
)  # the acts of a group
ALL_REDUCE_HALF = "all_reduce_half"  # of 2-byte floats: a CPU adds them more slowly
BROADCAST = "broadcast"  # inside a node: what leaders exchanged, to all of it
ORDERED = "ordered"  # floats added in rank order: shares to their owners, sums back
SMALL_BYTES = 16384  # at most so many bytes a worker go straight to every peer (tested against the groups)


@dataclass(frozen=True)
class Collective:
    """A collective: what is done, and its bytes: a worker's own (gather), else those of the whole buffer."""

    kind: str
    nbytes: int


@dataclass(frozen=True)
class PartTraffic:
    """Elements of a message that one codec codes; `remembers`: what it does not send is held back.

    `key` is the name under which a probe measures it: codec, phase, and whether sums are made on the way.
    """

    codec: str
    numel: float
    remembers: bool = False
    key: str = ""
    num_tensors: float = 0.0


@dataclass(frozen=True)
class Message:
    """Parcels that travel together: out, and if sums are made on the way, back."""

    parts: tuple[PartTraffic, ...]
    out: Collective
    back: Collective | None = None

    @property
    def gathers(self) -> bool:
        """True if every worker decodes the payloads of all."""
        return self.out.kind == ALL_GATHER

    @property
    def calls(self) -> Iterator[Collective]:
        yield self.out
        if self.back is not None:
            yield self.back


@dataclass(frozen=True)
class BucketTraffic:
    """One bucket: what is agreed on first, then messages; those of one route follow each other closely."""

    numel: int
    agree: tuple[Collective, ...]
    routes: tuple[tuple[Message, ...], ...]

    @property
    def calls(self) -> Iterator[Collective]:
        yield from self.agree
        for messages in self.routes:
            for message in messages:
                yield from message.calls


@dataclass(frozen=True)
class Traffic:
    """One step's buckets in a phase of the codec, and the share of all steps that are like it."""

    phase: str
    share: float
    buckets: tuple[BucketTraffic, ...]


def hop(topology: Topology, nbytes: float) -> float:
    """One step of a ring: every worker sends n bytes to the next one."""
    between = topology.inter.message(nbytes) if topology.nodes > 1 else 0.0
    inside = topology.intra.message(nbytes) if topology.gpus > 1 else 0.0
    return max(between, inside)


def all_reduce(topology: Topology, nbytes: float) -> float:
    """A ring all-reduce of n bytes: reduce-scatter, then all-gather, p - 1 hops of n / p each."""
    p = topology.workers
    return 2 * (p - 1) * hop(topology, nbytes / p)


def all_gather(topology: Topology, nbytes: float) -> float:
    """A ring all-gather of n bytes a worker: p - 1 hops of n."""
    return (topology.workers - 1) * hop(topology, nbytes)


def all_to_all(topology: Topology, nbytes: float) -> float:
    """Every worker sends n / p bytes to each, all at once; the two kinds of links work side by side."""
    p, g = topology.workers, topology.gpus
    between = topology.inter.straight(g * (p - g), g * (p - g) * nbytes / p)
    inside = topology.intra.straight(g - 1, (g - 1) * nbytes / p)
    return max(between, inside)


def broadcast(topology: Topology, nbytes: float) -> float:
    """From one worker to all, in pieces so small that they follow each other down the chain."""
    return (topology.workers - 1) * hop(topology, 0) + nbytes / _slowest(topology)


def inside_calls(nbytes: int) -> tuple[Collective, Collective]:
    """What happens inside a node before and behind the exchange of leaders: its mean, and the mean of all."""
    return Collective(ORDERED, nbytes), Collective(BROADCAST, nbytes)


def seconds(topology: Topology, call: Collective) -> float:
    """An act of the engine, as its group does it: short messages go straight to every peer."""
    p = topology.workers
    if p == 1:
        return 0.0
    if call.kind == ORDERED:
        return sum(seconds(topology, half) for half in _halves(call, p))
    done = _as_done(call, p)
    timing = topology.link.timing(done.kind)
    if timing is not None:
        return timing.seconds(done.nbytes)
    return _FORMULAS[done.kind](topology, done.nbytes)


def held_up(topology: Topology, call: Collective, wire_contends: float) -> float:
    """Seconds by which an act holds up the backward pass beside it: as measured, else a share of its time."""
    if call.kind == ORDERED and topology.workers > 1:
        return sum(held_up(topology, half, wire_contends) for half in _halves(call, topology.workers))
    done = _as_done(call, topology.workers)
    timing = topology.link.timing(done.kind)
    lost = None if timing is None or topology.workers == 1 else timing.lost
    return wire_contends * seconds(topology, call) if lost is None else lost.seconds(done.nbytes)


def sent_bytes(call: Collective, workers: int) -> int:
    """What one worker sends in an act: the same rules as the engine's groups, which is tested."""
    if call.kind == ORDERED:
        return sum(sent_bytes(half, workers) for half in _halves(call, workers))
    done = _as_done(call, workers)
    if done.kind in (ALL_REDUCE, ALL_REDUCE_HALF):
        return 2 * (workers - 1) * done.nbytes // workers
    if done.kind == ALL_TO_ALL:
        return done.nbytes // workers * (workers - 1)
    return done.nbytes * (workers - 1)


_FORMULAS = {
    ALL_REDUCE: all_reduce,
    ALL_REDUCE_HALF: all_reduce,
    ALL_TO_ALL: all_to_all,
    ALL_GATHER: all_gather,
    BROADCAST: broadcast,
}


def _as_done(call: Collective, workers: int) -> Collective:
    """The collective that a group makes of an act: short messages go straight to every peer."""
    if call.kind == ALL_REDUCE_MAX and call.nbytes > SMALL_BYTES:
        return Collective(ALL_REDUCE, call.nbytes)
    if call.kind in (ALL_GATHER, ALL_REDUCE_MAX) and call.nbytes <= SMALL_BYTES:
        return Collective(ALL_TO_ALL, workers * call.nbytes)
    return call


def _halves(call: Collective, workers: int) -> tuple[Collective, Collective]:
    """A sum in rank order: every worker gets the share that it owns (whole floats), then all get all sums."""
    share = 4 * -(-call.nbytes // (4 * workers))
    return Collective(ALL_TO_ALL, share * workers), Collective(ALL_GATHER, share)


def _slowest(topology: Topology) -> float:
    links = [topology.inter] * (topology.nodes > 1) + [topology.intra] * (topology.gpus > 1)
    return min((link.bytes_per_s for link in links), default=float("inf"))

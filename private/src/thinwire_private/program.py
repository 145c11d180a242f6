"""Program: a graph compiled under a variant: exact costs before anything runs, and one party's part in it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, field
from functools import cached_property
from time import perf_counter

import numpy as np

from thinwire_private.errors import ModelError
from thinwire_private.link.channel import Channel, ChannelCounters
from thinwire_private.message import SERVER, WireTraffic, hops, last_sender, traffic
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.oracle import check_input
from thinwire_private.ot.primitives import Words
from thinwire_private.ot.suite import setup_messages
from thinwire_private.protocols.operator import Party, encode
from thinwire_private.protocols.rlwe_product import FactorCache
from thinwire_private.step import OFFLINE, ONLINE, PHASES, SETUP, Kept, Query, Step
from thinwire_private.variant import Variant


@dataclass(frozen=True)
class CostRow:
    """What one operator of one layer sends: predicted, or measured with the seconds it took."""

    layer: str
    operator: str
    phase: str
    traffic: WireTraffic
    seconds: float | None = None  # measured
    hops: int | None = None  # predicted: flights, but messages that cross count once


@dataclass(frozen=True, eq=False)
class Program:
    """The steps of both parties. Set-up happens once per connection, the rest once per query."""

    graph: Graph
    variant: Variant
    batch: int
    steps: tuple[Step, ...]

    def of_phase(self, phase: str) -> tuple[Step, ...]:
        """The steps of a phase, in order."""
        return tuple(step for step in self.steps if step.phase == phase)

    @cached_property
    def _costs(self) -> tuple[CostRow, ...]:
        setup = setup_messages(self.variant.kind)
        rows = [CostRow("", "base_ot", SETUP, traffic(setup), hops=hops(setup))]
        before = last_sender(setup, None)
        for phase in PHASES:
            for step in self.of_phase(phase):
                if step.messages:
                    sent, waits = traffic(step.messages, before), hops(step.messages, before)
                    rows.append(CostRow(step.layer, step.operator, phase, sent, hops=waits))
                    before = last_sender(step.messages, before)
        return tuple(rows)

    def costs(self) -> tuple[CostRow, ...]:
        """Predicted rows of a first query: set-up, offline, online, each in the order in which it runs."""
        return self._costs

    def total(self, *phases: str) -> WireTraffic:
        """The predicted sum over phases; all of them if none is named."""
        chosen = [row.traffic for row in self.costs() if row.phase in (phases or PHASES)]
        return sum(chosen, WireTraffic())

    def hops(self, *phases: str) -> int:
        """One-way latencies a query waits for, over phases; all of them if none is named."""
        return sum(row.hops or 0 for row in self.costs() if row.phase in (phases or PHASES))

    def digest(self) -> bytes:
        """What both parties must agree on: the public graph, the variant, the batch and every message
        size."""
        parts: list[object] = [self.variant, self.batch]
        parts += [astuple(m) for step in self.steps for m in step.messages]
        parts += [(s.layer, s.operator, s.phase) for s in self.steps]
        return hashlib.sha256(repr(parts).encode()).digest()


@dataclass(frozen=True)
class QueryProgress:
    """How far a phase of a query is, and a guess of the seconds it still takes."""

    phase: str
    layer: str
    done: float  # 0 to 1
    seconds_left: float

    def __str__(self) -> str:
        minutes, seconds = divmod(round(self.seconds_left), 60)
        return f"{self.phase} {self.done:.0%}, {self.layer}, {minutes}:{seconds:02d} left"


Watch = Callable[[QueryProgress], None]


@dataclass
class Player:
    """One party of a program on one connection.

    1. `setup` once: base OTs, seeds of the weights.
    2. `prepare` once per query, before its input exists: products of fresh masks.
    3. `infer` once per query. Every query takes pads, masks and indices that no other one has used.
    """

    program: Program
    role: int
    channel: Channel
    seed: bytes | None = None  # for tests only
    context: bytes = b""
    kept: Kept = field(default_factory=lambda: Kept(FactorCache()))
    watch: Watch = lambda progress: None  # called after every step
    rows: list[CostRow] = field(default_factory=list)
    _party: Party | None = None
    _prepared: list[Query] = field(default_factory=list)

    def setup(self) -> None:
        """Base OTs and what depends on the weights alone."""
        start, before = perf_counter(), self.channel.counters
        context = self.program.digest() + self.context
        self._party = Party.start(self.role, self.channel, self.program.variant.kind, self.seed, context)
        self._note("", "base_ot", SETUP, start, before)
        self._set_up()

    def sibling(self, program: Program) -> Player:
        """A player of another batch size on the same connection: its OTs, its seeds, and what was missing."""
        made = Player(program, self.role, self.channel, self.seed, self.context, self.kept, self.watch)
        made._party = self._party
        made._set_up()
        return made

    def _set_up(self) -> None:
        """Keys and seeds that the session lacks."""
        lacking = [step for step in self.program.of_phase(SETUP) if step.layer not in self.kept.ready]
        self._play(lacking, self._query())
        self.kept.ready |= {step.layer for step in lacking}

    def prepare(self) -> None:
        """The offline phase of one query."""
        query = self._query()
        self._play(self.program.of_phase(OFFLINE), query)
        self._prepared.append(query)

    def infer(self, x: IntArray | None = None) -> IntArray | None:
        """The online phase: the client gives pictures (batch, *shape) and gets the output."""
        graph = self.program.graph
        if self.role == SERVER:
            share = np.zeros(graph.input.value.size * self.program.batch, np.uint64)
        else:
            share = self._checked(x)
        if not self._prepared:
            self.prepare()
        query = self._prepared.pop(0)
        query.nodes[graph.input.name].share = share
        self._play(self.program.of_phase(ONLINE), query)
        return query.result

    def _checked(self, x: IntArray | None) -> Words:
        """The client's pictures; refused before anything of them is used."""
        if x is None:
            raise ModelError("the client must give its pictures")
        pictures = check_input(self.program.graph, x)
        if len(pictures) != self.program.batch:
            raise ModelError(f"{len(pictures)} pictures for a program of batch {self.program.batch}")
        return encode(pictures, 64)

    def _query(self) -> Query:
        if self._party is None:
            raise ModelError("the connection is not set up: call setup first")
        return Query(self._party, self.program.batch, self.kept)

    def _play(self, steps: Sequence[Step], query: Query) -> None:
        total, done, began = sum(step.weight for step in steps), 0, perf_counter()
        for step in steps:
            start, before = perf_counter(), self.channel.counters
            step.act(query)
            self._note(step.layer, step.operator, step.phase, start, before)
            done += step.weight
            if done:
                left = (perf_counter() - began) * (total - done) / done
                self.watch(QueryProgress(step.phase, step.layer, done / total, left))

    def _note(self, layer: str, operator: str, phase: str, start: float, before: ChannelCounters) -> None:
        passed = self.channel.counters - before
        sent, received = passed.sent_bytes, passed.received_bytes
        server, client = (sent, received) if self.role == SERVER else (received, sent)
        counted = WireTraffic(server, client, passed.sent_frames + passed.received_frames, passed.flights)
        self.rows.append(CostRow(layer, operator, phase, counted, perf_counter() - start))

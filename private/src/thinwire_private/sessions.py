"""Sessions: one client's connection on either side: set-up once, then offline and online phases of queries.

Base OTs and the seeds of the weights serve all queries of the session. Every batch size has a program of its
own on the same OTs; every query takes pads that no other one has used.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import Counter
from dataclasses import asdict
from itertools import cycle

from thinwire.errors import LinkError
from thinwire_private.compiler import compile_graph
from thinwire_private.costs import CostEntry
from thinwire_private.errors import ModelError
from thinwire_private.link.channel import Channel
from thinwire_private.link.handshake import MAX_BATCH, Request, describe_digest
from thinwire_private.message import CLIENT, SERVER, WireTraffic, traffic
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.twq import canonical, from_facts, to_facts
from thinwire_private.ot.suite import setup_messages
from thinwire_private.program import CostRow, Player, Program, Watch
from thinwire_private.protocols.rlwe_product import FactorCache
from thinwire_private.step import OFFLINE, ONLINE, SETUP, Kept
from thinwire_private.variant import Variant

MAX_PREPARED = 64  # queries prepared ahead: each holds memory on the server
VALUE_WORDS, COLUMN_WORDS = 18, 4  # 8-byte words per value and per entry of im2col, measured
OT_BYTES, MAX_OT_BYTES = (
    18,
    256 << 20,
)  # of an OT made ahead (private/csrc/extension.cpp), of all of a session


def describe(graph: Graph, variant: Variant) -> bytes:
    """Architecture, bit widths, shifts, accumulator widths and protocol switches; no weights, no biases."""
    return canonical({"graph": to_facts(graph), "variant": asdict(variant)})


def digest(graph: Graph, variant: Variant) -> bytes:
    """What a client that insists on a model and a variant compares."""
    return describe_digest(describe(graph, variant))


def read_description(data: bytes) -> tuple[Graph, Variant]:
    """The graph without weights, and the variant; trusts nothing."""
    try:
        described = json.loads(data)
        graph, switches = described["graph"], described["variant"]
        known = asdict(Variant("any"))
        if set(switches) != set(known) or any(
            type(switches[name]) is not type(value) for name, value in known.items()
        ):
            raise ModelError(
                "the server's protocol switches differ from those of this version: install the same thinwire"
            )
        return from_facts(graph), Variant(**switches)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            "the server's description cannot be read: install the same thinwire on both sides"
        ) from None


class PrivateSession:
    """What both sides have in common."""

    def __init__(
        self,
        role: int,
        graph: Graph,
        variant: Variant,
        channel: Channel,
        session_id: bytes,
        factors: FactorCache | None = None,
        watch: Watch = lambda progress: None,
    ) -> None:
        self._role, self._graph, self._variant, self._channel = role, graph, variant, channel
        self._session_id, self._watch = session_id, watch
        self._kept = Kept(factors or FactorCache())
        self._programs: dict[int, Program] = {}
        self._players: dict[int, Player] = {}
        self._ready: Counter[int] = Counter()  # prepared queries, by batch

    def setup(self) -> None:
        """Base OTs and seeds, with the program of single pictures."""
        self._player(1)

    def is_prepared(self, batch: int) -> bool:
        """Whether the offline phase of a query of this size is done."""
        return self._ready[batch] > 0

    def num_prepared(self, batch: int) -> int:
        """Queries of this size whose offline phase is done."""
        return self._ready[batch]

    def prepare(self, batch: int) -> None:
        """The offline phase of one query."""
        if self._ready.total() >= MAX_PREPARED:
            raise LinkError(
                f"{MAX_PREPARED} queries are prepared already: use some of them before preparing more"
            )
        self._player(batch).prepare()
        self._ready[batch] += 1

    def _program(self, batch: int) -> Program:
        if batch not in self._programs:
            self._programs[batch] = compile_graph(self._graph, self._variant, batch)
        return self._programs[batch]

    def _player(self, batch: int) -> Player:
        if batch not in self._players:
            self._players[batch] = self._made(self._program(batch))
        return self._players[batch]

    def _made(self, program: Program) -> Player:
        """A player; the first one sets the connection up, others stand on its OTs and seeds."""
        if not self._players:
            first = Player(
                program,
                self._role,
                self._channel,
                context=self._session_id,
                kept=self._kept,
                watch=self._watch,
            )
            first.setup()
            return first
        return next(iter(self._players.values())).sibling(program)


class MemoryLimit:
    """Bytes that the prepared queries of all sessions may hold together."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit, self.used = limit_bytes, 0
        self._lock = threading.Lock()

    def take(self, num_bytes: int) -> None:
        """Reserve memory; raises LinkError if there is not enough."""
        with self._lock:
            if self.used + num_bytes > self._limit:
                raise LinkError(
                    f"the query needs {num_bytes / 1e6:,.0f} MB of the server, {self.used / 1e6:,.0f} of its "
                    f"{self._limit / 1e6:,.0f} MB are in use: ask for fewer pictures, or try again later"
                )
            self.used += num_bytes

    def give_back(self, num_bytes: int) -> None:
        """Free what was taken."""
        with self._lock:
            self.used -= num_bytes


class ServerSession(PrivateSession):
    """The server's side, within a `with` block: answers what the client asks for."""

    def __init__(
        self,
        graph: Graph,
        variant: Variant,
        channel: Channel,
        session_id: bytes,
        factors: FactorCache | None = None,
        memory: MemoryLimit | None = None,
    ) -> None:
        super().__init__(SERVER, graph, variant, channel, session_id, factors)
        self._memory, self._taken = memory or MemoryLimit(1 << 62), 0
        self.num_queries = 0

    def __enter__(self) -> ServerSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._memory.give_back(self._taken)
        self._taken = 0

    def prepare(self, batch: int) -> None:
        """The offline phase of one query, if there is memory for it."""
        needed = query_bytes(self._program(batch))
        self._memory.take(needed)
        self._taken += needed
        super().prepare(batch)

    def query(self, batch: int) -> None:
        """The online phase; the client must have had it prepared."""
        if not self.is_prepared(batch):
            raise LinkError("the client asks a query that was not prepared: ask for its preparation first")
        self._ready[batch] -= 1
        self._player(batch).infer()
        self.num_queries += 1
        needed = query_bytes(self._program(batch))
        self._memory.give_back(needed)
        self._taken -= needed


class ClientSession(PrivateSession):
    """The client's side, which keeps the costs."""

    def __init__(
        self,
        graph: Graph,
        variant: Variant,
        channel: Channel,
        session_id: bytes,
        watch: Watch = lambda progress: None,
    ) -> None:
        super().__init__(CLIENT, graph, variant, channel, session_id, watch=watch)

    def ask(self, request: Request) -> None:
        """Send a request."""
        if not 1 <= request.batch <= MAX_BATCH:
            raise ModelError(
                f"a query of {request.batch} pictures is refused: give 1 to {MAX_BATCH} pictures"
            )
        self._channel.send(request.to_bytes())

    def query(self, x: IntArray) -> IntArray:
        """The online phase on pictures (N, *shape)."""
        self._ready[len(x)] -= 1
        answer = self._player(len(x)).infer(x)
        assert answer is not None
        return answer

    @property
    def entries(self) -> list[CostEntry]:
        """Every step so far, predicted and measured."""
        return [entry for player in self._players.values() for entry in measured_costs(player)]


def query_bytes(program: Program) -> int:
    """Memory that a query takes at the server until its answer, at most: shares and triples of every value,
    the columns of the largest product, OTs made ahead."""
    graph = program.graph
    values = sum(node.value.size for node in graph)
    columns = max(layer.dims[1] * layer.dims[2] for layer in graph.layers)
    num_ots = sum(message.num_ots for step in program.of_phase(ONLINE) for message in step.messages)
    words = VALUE_WORDS * values + COLUMN_WORDS * columns
    return 8 * program.batch * words + min(MAX_OT_BYTES, OT_BYTES * num_ots)


def measured_costs(player: Player) -> list[CostEntry]:
    """The measured rows of a client's player, each beside its prediction."""
    program = player.program
    setup = {step.layer: step.messages for step in program.of_phase(SETUP)}
    turns = {phase: cycle(program.of_phase(phase) or [None]) for phase in (OFFLINE, ONLINE)}
    found = []
    for row in player.rows:
        if row.phase != SETUP:
            step = next(turns[row.phase])
            assert step is not None
            due = step.messages
        else:
            due = setup[row.layer] if row.layer else setup_messages(program.variant.kind)
        found.append(_entry(row, traffic(due)))
    return found


def _entry(row: CostRow, due: WireTraffic) -> CostEntry:
    return CostEntry(
        row.layer or "session",
        row.operator,
        row.phase,
        due.from_client_bytes,
        due.from_server_bytes,
        row.traffic.from_client_bytes,
        row.traffic.from_server_bytes,
        row.traffic.flights,
        row.seconds or 0.0,
    )


def fingerprint(graph: Graph, variant: Variant) -> bytes:
    """What both sides compute and compare: every message of a query of one and of two pictures."""
    digests = [compile_graph(graph, variant, batch).digest() for batch in (1, 2)]
    return hashlib.sha256(b"".join(digests)).digest()

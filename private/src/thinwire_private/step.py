"""Step: one piece of a program: what it sends and what a party does; Query: what a party holds of a query."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from thinwire_private.message import ProtocolMessage
from thinwire_private.net.nodes import IntArray
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.operator import Party
from thinwire_private.protocols.product import Seeds
from thinwire_private.protocols.rlwe_product import FactorCache
from thinwire_private.protocols.triples import PendingTriples, Stock
from thinwire_private.rlwe.keys import PublicKey, SecretKey

SETUP, OFFLINE, ONLINE = "setup", "offline", "online"
PHASES = (SETUP, OFFLINE, ONLINE)
ASK, FINISH = "ask", "finish"  # parts of an exchange that lie apart, see ahead.py


class NodeState:
    """What a party holds of one node during one query; an attribute exists once its step has run."""

    mask: Words  # client, offline: r of an activation, (batch, *shape)
    product: Words  # offline: a share (d1, batch * d3) of W r
    pending: PendingTriples  # offline: triples that were asked for
    triples: Stock | None = None  # offline; None: nothing is ANDed
    share: Words  # native ring, flat
    wide: Words  # the same numbers, extended
    opened: Words  # server: the activation minus the client's mask


@dataclass
class Kept:
    """What a party keeps for all queries of a session."""

    factors: FactorCache  # server: shared by all sessions of a model
    seeds: dict[str, Seeds] = field(default_factory=dict)  # of layers, by name
    secret: SecretKey | None = None  # client
    public: PublicKey | None = None  # server
    ready: set[str] = field(default_factory=set)  # layers whose set-up is done


@dataclass
class Query:
    """One party's view of a query, from its offline phase to its result; used once."""

    party: Party
    batch: int
    kept: Kept
    nodes: defaultdict[str, NodeState] = field(default_factory=lambda: defaultdict(NodeState))
    result: IntArray | None = None  # the client's output


@dataclass(frozen=True)
class Step:
    """Belongs to a layer and a phase; sends exactly `messages`, attributed as the client sees them."""

    layer: str
    operator: str
    phase: str
    messages: tuple[ProtocolMessage, ...]
    act: Callable[[Query], None]
    part: str = ""
    work: int = 0  # what it computes besides, in bytes that take about as long

    @property
    def weight(self) -> int:
        """What it counts for in a progress bar."""
        return self.work + sum(message.num_bytes for message in self.messages)

"""Step: one piece of a program: what it will send, and what a party does; Run: what a query knows so far."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from thinwire_private.message import Message
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray, Weighted
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.operator import Party
from thinwire_private.protocols.product import Seeds
from thinwire_private.protocols.triples import Making, Stock

SETUP, OFFLINE, ONLINE = "setup", "offline", "online"
PHASES = (SETUP, OFFLINE, ONLINE)
ASK, FINISH = "ask", "finish"  # parts of an exchange that lie apart, see pipeline.py
LAG = 2  # layers; triples that are asked for and not finished are held in memory


@dataclass
class Prepared:
    """What the offline phase made for one query; used once."""

    masks: dict[str, Words] = field(default_factory=dict)  # client: r of an activation, (batch, *shape)
    products: dict[str, Words] = field(default_factory=dict)  # shares (d1, batch * d3) of W r
    triples: dict[str, Stock] = field(default_factory=dict)
    making: dict[str, Making] = field(default_factory=dict)


@dataclass
class Run:
    """One party's view of a query: shares by node name, seeds that outlive the query."""

    party: Party
    graph: Graph
    batch: int
    seeds: dict[str, Seeds]
    prepared: Prepared
    shares: dict[str, Words] = field(default_factory=dict)  # native ring, flat
    wide: dict[str, Words] = field(default_factory=dict)  # the same numbers, extended
    result: IntArray | None = None  # the client's output

    def weight(self, layer: Weighted) -> IntArray | None:
        """W (d1 x d2) with the server, None with the client."""
        return layer.matrix() if self.party.is_server else None

    def operand(self, layer: Weighted, x: Words) -> Words:
        """A flat batch as the matrix (d2, batch * d3) that the layer multiplies."""
        shaped = x.reshape(self.batch, *layer.taken[0].shape)
        columns: Words = layer.operand(shaped)  # type: ignore[arg-type, assignment]
        return np.ascontiguousarray(columns.transpose(1, 0, 2)).reshape(columns.shape[1], -1)

    def accumulator(self, layer: Weighted, y: Words) -> Words:
        """(d1, batch * d3) as a flat batch."""
        d1, _, d3 = layer.dims
        return np.ascontiguousarray(y.reshape(d1, self.batch, d3).transpose(1, 0, 2)).reshape(-1)


@dataclass(frozen=True)
class Step:
    """Belongs to a layer and a phase; sends exactly `messages`, attributed as the client sees them."""

    layer: str
    operator: str
    phase: str
    messages: tuple[Message, ...]
    act: Callable[[Run], None]
    part: str = ""


def in_pipeline(steps: Iterable[Step]) -> tuple[Step, ...]:
    """Offline steps, given in the order of layers. No message waits but the first one and the last."""
    ordered = list(_ordered(steps))
    total, made = sum(len(step.messages) for step in ordered), []
    num_before = 0
    for step in ordered:
        places = range(num_before, num_before + len(step.messages))
        waiting = [place in (0, total - 1) for place in places]
        made.append(replace(step, messages=tuple(map(_crossing, step.messages, waiting))))
        num_before += len(step.messages)
    return tuple(made)


def _ordered(steps: Iterable[Step]) -> Iterator[Step]:
    late: deque[Step] = deque()
    num_asked = 0
    for step in steps:
        if step.part == FINISH:
            late.append(step)
            continue
        yield step
        num_asked += step.part == ASK
        if step.part == ASK and num_asked > LAG:
            yield late.popleft()
    yield from late


def _crossing(message: Message, waits: bool) -> Message:
    return replace(message, crosses=not waits)

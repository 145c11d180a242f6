"""Ahead: what an online step needs and no input decides, made offline: its triples, and half of its OTs.

Products by ring-LWE and triples are questions of the client that the server answers. Where each waits for its
answer, the line is idle for a round trip at every layer. So the client asks and goes on; it takes an answer
LAG questions later, when it has long arrived. The line is never empty, and one round trip is left in all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from thinwire_private.message import CLIENT, SERVER, ProtocolMessage
from thinwire_private.ot.softspoken import BLOCK_OTS
from thinwire_private.protocols.triples import TripleMaker
from thinwire_private.step import ASK, FINISH, OFFLINE, Query, Step

LAG = 8  # questions under way; triples that are asked for and not finished are held in memory


class HalfOts:
    """Most of the work of an OT extension depends on no choice: it is done while products travel.

    The bytes on the line are the same, and go when the choices are known.
    """

    def __init__(self, step: Step) -> None:
        self._layer = step.layer
        self._blocks = [
            sum(_blocks(message.num_ots) for message in step.messages if message.sender == role)
            for role in (SERVER, CLIENT)
        ]

    def step(self) -> Step:
        """The offline step."""
        return Step(self._layer, "half_ots", OFFLINE, (), self.prepare)

    def prepare(self, query: Query) -> None:
        """Both directions of this party."""
        role = query.party.role
        query.party.prepare_ots(self._blocks[role], self._blocks[1 - role])


class TriplesAhead:
    """The triples of a layer, in two parts: the client's rows, which the server answers; then what the server
    sent, and the client's answer.

    Extending takes the oldest blocks that were made ahead; what it takes is made anew for online steps.
    """

    def __init__(self, layer: str, maker: TripleMaker) -> None:
        self._layer, self._maker = layer, maker
        self._blocks = _blocks(maker.num_ots)

    def steps(self) -> Iterator[Step]:
        """The two offline steps; none if nothing is ANDed."""
        if messages := self._maker.messages():
            yield Step(self._layer, "triples", OFFLINE, messages[:1], self.ask, ASK)
            yield Step(self._layer, "triples", OFFLINE, messages[1:], self.finish, FINISH)

    def ask(self, query: Query) -> None:
        """The client's rows; the server answers them at once."""
        party = query.party
        party.prepare_ots(self._blocks, self._blocks if party.is_server else 0)
        pending = self._maker.ask(party)
        if party.is_server:
            pending.answer()
        query.nodes[self._layer].pending = pending

    def finish(self, query: Query) -> None:
        """The client answers; both have their shares."""
        state, party = query.nodes[self._layer], query.party
        if not party.is_server:
            party.prepare_ots(0, self._blocks)
            state.pending.answer()
        state.triples = state.pending.finish()
        del state.pending


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


def _crossing(message: ProtocolMessage, waits: bool) -> ProtocolMessage:
    return replace(message, crosses=not waits)


def _blocks(num_ots: int) -> int:
    return -(-num_ots // BLOCK_OTS)

"""Ahead: what an online step needs and no input decides, made offline: its triples, and half of its OTs."""

from __future__ import annotations

from collections.abc import Iterator

from thinwire_private.message import CLIENT, SERVER
from thinwire_private.ot.softspoken import BLOCK_OTS
from thinwire_private.protocols.triples import TripleMaker
from thinwire_private.step import ASK, FINISH, OFFLINE, Run, Step


def half_ots(step: Step) -> Step:
    """Most of the work of an OT extension depends on no choice: it is done while products travel.

    The bytes on the line are the same, and go when the choices are known.
    """
    blocks = [sum(_blocks(m.num_ots) for m in step.messages if m.sender == role) for role in (SERVER, CLIENT)]

    def act(run: Run) -> None:
        run.party.prepare_ots(blocks[run.party.role], blocks[1 - run.party.role])

    return Step(step.layer, "half_ots", OFFLINE, (), act)


def triples(name: str, maker: TripleMaker) -> Iterator[Step]:
    """In two parts: the client's rows, which the server answers; then what the server sent, and the client's
    answer."""
    blocks = _blocks(maker.num_ots)
    first, *others = maker.messages()

    # Extending takes the oldest blocks that were made ahead; what it takes is made anew for online steps.
    def ask(run: Run) -> None:
        run.party.prepare_ots(blocks, blocks if run.party.is_server else 0)
        making = maker.ask(run.party)
        if run.party.is_server:
            making.answer()
        run.prepared.making[name] = making

    def finish(run: Run) -> None:
        making = run.prepared.making.pop(name)
        if not run.party.is_server:
            run.party.prepare_ots(0, blocks)
            making.answer()
        run.prepared.triples[name] = making.finish()

    yield Step(name, "triples", OFFLINE, (first,), ask, ASK)
    yield Step(name, "triples", OFFLINE, tuple(others), finish, FINISH)


def _blocks(num_ots: int) -> int:
    return -(-num_ots // BLOCK_OTS)

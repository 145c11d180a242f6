"""Pipeline: the offline steps in an order in which neither party waits while products travel.

Products go one way, from the client, and are most of all bytes; making triples goes both ways. Where the two
take turns, the line is idle for a round trip at every layer. So the client asks for triples and goes on; it
takes the server's answer LAG layers later, when it has long arrived. The line is never empty, and one round
trip is left in all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

from thinwire_private.message import Message
from thinwire_private.step import ASK, FINISH, Step

LAG = 2  # layers; triples that are asked for and not finished are held in memory


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

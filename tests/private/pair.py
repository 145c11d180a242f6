"""Two parties in one process: what the tests of protocols run on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from thinwire_private.link.channel import memory_pair
from thinwire_private.message import CLIENT, SERVER, traffic
from thinwire_private.ot.kind import OtKind
from thinwire_private.protocols.operator import Operator, Party

KINDS = ("kk13+iknp", "softspoken:1", "softspoken:2", "softspoken:4", "softspoken:8")


def both(server: Callable[[], Any], client: Callable[[], Any]) -> tuple[Any, Any]:
    """Run two functions in two threads; an error of either is raised here."""
    found: list[Any] = [None, None]
    errors: list[BaseException] = []

    def run(place: int, function: Callable[[], Any]) -> None:
        try:
            found[place] = function()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, args=(SERVER, server))
    thread.start()
    run(CLIENT, client)
    thread.join()
    if errors:
        raise errors[0]
    return found[0], found[1]


class Pair:
    """A server and a client after their set-up, with fixed seeds."""

    def __init__(self, kind: str, seed: int = 0, timeout_s: float = 300.0) -> None:
        self.kind = OtKind.read(kind)
        channels = memory_pair(timeout_s)
        seeds = [bytes([seed % 256, seed // 256, role]) + b"thinwire test"[:13] for role in (SERVER, CLIENT)]
        self.server, self.client = both(
            lambda: Party.start(SERVER, channels[SERVER], self.kind, seeds[SERVER]),
            lambda: Party.start(CLIENT, channels[CLIENT], self.kind, seeds[CLIENT]),
        )

    def run(
        self, operator: Operator, server: Callable[[Party], Any], client: Callable[[Party], Any]
    ) -> tuple[Any, Any]:
        """Run one operator; what was sent must be what it predicted: bytes, frames and flights."""
        channel = self.client.channel
        before, direction = channel.counters, channel.direction
        found = both(lambda: server(self.server), lambda: client(self.client))
        last = {"sent": CLIENT, "received": SERVER, None: None}[direction]
        passed, predicted = channel.counters - before, traffic(operator.messages(), last)
        measured = (passed.received_bytes, passed.sent_bytes, passed.sent_frames + passed.received_frames)
        assert measured == (predicted.from_server_bytes, predicted.from_client_bytes, predicted.frames)
        assert passed.flights == predicted.flights
        return found

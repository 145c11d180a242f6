"""A victim of the fuzzer: a whole private prediction in which one message of the peer is damaged on the way.

The damage is within a frame whose checksum fits, as a broken or hostile peer would send it. The party that
reads it must refuse it in one sentence or compute a wrong answer; neither party may crash or hang.
"""

from __future__ import annotations

import random
import threading
from functools import cache

from thinwire.errors import LinkError
from thinwire_lab.private.mutation import mutate
from thinwire_private.link.channel import Channel, memory_pair
from thinwire_private.net.graph import Graph
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import Sketch, random_pictures, with_random_weights
from thinwire_private.sessions import ClientSession, ServerSession
from thinwire_private.variant import variant

VARIANTS = ("ours", "B1")
RECEIVES = 60  # about as many messages reach a party of the small network
TIMEOUT_S = 3.0


class Damaged(Channel):
    """A channel that damages the message received at one place."""

    def __init__(self, inner: Channel, place: int, dice: random.Random) -> None:
        super().__init__()
        self._inner, self._place, self._dice = inner, place, dice

    def abort(self, reason: str) -> None:
        self._inner.abort(reason)

    def close(self) -> None:
        self._inner.close()

    def _push(self, message: memoryview) -> None:
        self._inner.send(message)

    def _pull(self, num_bytes: int) -> memoryview:
        message = self._inner.receive(num_bytes)
        self._place -= 1
        if self._place != 0:
            return message
        damaged = mutate(bytes(message), self._dice)
        if len(damaged) != num_bytes and self._dice.random() < 0.8:  # mostly a length that is due
            damaged = damaged[:num_bytes].ljust(num_bytes, b"\xff")
        if len(damaged) != num_bytes:
            raise LinkError(f"the peer sent {len(damaged)} bytes where {num_bytes} were due")
        return memoryview(damaged)


def session(dice: random.Random) -> None:
    """Set-up, a prepared query and its answer, with one damage on one side; raises what a party met."""
    chosen, graph = variant(dice.choice(VARIANTS)), small_graph()
    ends: list[Channel] = list(memory_pair(TIMEOUT_S))
    victim = dice.randrange(2)
    ends[victim] = Damaged(ends[victim], dice.randrange(1, RECEIVES), dice)
    failures: list[BaseException] = []

    def serve() -> None:
        server = ServerSession(graph, chosen, ends[0], bytes(32))
        server.setup()
        server.prepare(1)
        server.query(1)

    def visit() -> None:
        client = ClientSession(graph.public(), chosen, ends[1], bytes(32))
        client.setup()
        client.prepare(1)
        client.query(random_pictures(graph, 1))

    def guarded(role: int) -> None:
        try:
            (serve, visit)[role]()
        except BaseException as error:
            failures.append(error)
            ends[role].abort("stopped")

    threads = [threading.Thread(target=guarded, args=(role,)) for role in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


@cache
def small_graph() -> Graph:
    """A convolution and a linear layer on a picture of 2x2."""
    net = Sketch("tiny", (1, 2, 2), 3, read_bits("W2A3"))
    x = net.relu("relu1", net.conv("conv1", "input", 2))
    x = net.relu("relu2", net.conv("conv2", x, 2))
    return with_random_weights(net.finish(net.linear("fc", x, 2)))

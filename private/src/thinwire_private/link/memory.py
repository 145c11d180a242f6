"""A pair of channels in memory: two threads of one process, for tests; counts as a socket would."""

from __future__ import annotations

import queue

from thinwire.errors import LinkError
from thinwire_private.link.channel import Channel

Item = memoryview | LinkError


def memory_pair(timeout_s: float = 60.0) -> tuple[MemoryChannel, MemoryChannel]:
    """Two ends; what one sends the other receives."""
    there: queue.SimpleQueue[Item] = queue.SimpleQueue()
    back: queue.SimpleQueue[Item] = queue.SimpleQueue()
    return MemoryChannel(back, there, timeout_s), MemoryChannel(there, back, timeout_s)


class MemoryChannel(Channel):
    """One end. Messages are handed over as they are, so the sender must not change them."""

    def __init__(
        self, inbox: queue.SimpleQueue[Item], outbox: queue.SimpleQueue[Item], timeout_s: float
    ) -> None:
        super().__init__()
        self._inbox, self._outbox, self._timeout_s = inbox, outbox, timeout_s

    def abort(self, reason: str) -> None:
        self._outbox.put(LinkError(f"the peer stopped: {reason}"))

    def close(self) -> None:
        self._outbox.put(LinkError("the peer has closed the connection"))

    def _push(self, message: memoryview) -> None:
        self._outbox.put(message.toreadonly())

    def _pull(self, num_bytes: int) -> memoryview:
        try:
            item = self._inbox.get(timeout=self._timeout_s)
        except queue.Empty:
            raise LinkError(f"the peer has sent nothing for {self._timeout_s:g} s") from None
        if isinstance(item, LinkError):
            self._inbox.put(item)
            raise item
        if len(item) != num_bytes:
            raise LinkError(f"the peer sent {len(item)} bytes where {num_bytes} were due")
        return item

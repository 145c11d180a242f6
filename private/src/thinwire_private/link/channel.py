"""Channel: what a protocol sees of the network: send a message, receive a message of known size, count."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Literal, Self

from thinwire.errors import LinkError
from thinwire_private.link.counters import Counters
from thinwire_private.link.frame import framed_bytes, num_frames

DEFAULT_MAX_MESSAGE_BYTES = 4 << 30
Buffer = bytes | bytearray | memoryview


class Channel(ABC):
    """Two parties hold one end each.

    1. `send` queues a message and returns; it never waits for the peer to receive, so both may send at once.
       The bytes must not change afterwards.
    2. `receive(n)` gives the next message, which has exactly n bytes; another size is an error at once,
       because every size follows from the protocol.
    3. An empty message is neither sent nor counted.

    >>> from thinwire_private.link.memory import memory_pair
    >>> ours, theirs = memory_pair()
    >>> ours.send(b"thin")
    >>> bytes(theirs.receive(4)), theirs.counters.received_bytes
    (b'thin', 16)
    """

    def __init__(self, max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES) -> None:
        self.max_message_bytes = max_message_bytes
        self._bytes = {"sent": 0, "received": 0}
        self._frames = {"sent": 0, "received": 0}
        self._payload = {"sent": 0, "received": 0}
        self._flights = 0
        self.direction: str | None = None  # of the last message: "sent" or "received"

    @property
    def counters(self) -> Counters:
        """What was sent and received so far."""
        return Counters(
            self._bytes["sent"],
            self._bytes["received"],
            self._payload["sent"],
            self._payload["received"],
            self._frames["sent"],
            self._frames["received"],
            self._flights,
        )

    def send(self, data: Buffer) -> None:
        """Queue a message."""
        message = memoryview(data).cast("B")
        self._check_size(len(message))
        if len(message):
            self._push(message)
            self._count("sent", len(message))

    def receive(self, num_bytes: int) -> memoryview:
        """The next message, of exactly num_bytes bytes."""
        self._check_size(num_bytes)
        if num_bytes == 0:
            return memoryview(b"")
        message = self._pull(num_bytes)
        self._count("received", num_bytes)
        return message

    def exchange(self, data: Buffer) -> memoryview:
        """Send a message and receive one of the same size: openings, where both speak at once."""
        self.send(data)
        return self.receive(memoryview(data).nbytes)

    @abstractmethod
    def abort(self, reason: str) -> None:
        """Tell the peer in one sentence why this end stops, if it can be told, and close."""

    @abstractmethod
    def close(self) -> None:
        """End in order: what was sent is delivered first."""

    @abstractmethod
    def _push(self, message: memoryview) -> None: ...

    @abstractmethod
    def _pull(self, num_bytes: int) -> memoryview: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_size(self, num_bytes: int) -> None:
        if num_bytes > self.max_message_bytes:
            raise LinkError(
                f"a message of {num_bytes:,} bytes is above the limit of {self.max_message_bytes:,}: "
                "raise max_message_bytes on both sides, or use a smaller batch"
            )

    def _count(self, direction: Literal["sent", "received"], num_bytes: int) -> None:
        self._bytes[direction] += framed_bytes(num_bytes)
        self._payload[direction] += num_bytes
        self._frames[direction] += num_frames(num_bytes)
        self._flights += direction != self.direction
        self.direction = direction

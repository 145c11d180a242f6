"""Channel: what a protocol sees of the network: send a message, receive a message of known size, count.

A message is cut into frames of at most 16 MiB. The bytes of a frame, integers little-endian:

    0   u32  length of the payload, at most 2^24; the top bit marks an abort, whose payload is a sentence
    4   u32  sequence number: frames of this direction before this one, modulo 2^32
    8   u32  CRC-32 (as in zlib) over bytes 0..7 and the payload
    12  ...  payload

A flipped bit and a lost, repeated or reordered frame are detected. The checksum does not stop an attacker on
the way: that is what TLS is for.
"""

from __future__ import annotations

import queue
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Literal, NamedTuple, Self

from thinwire.errors import LinkError

MAX_FRAME_BYTES = 1 << 24
HEADER = struct.Struct("<III")
FRAME_OVERHEAD_BYTES = HEADER.size
MAX_REASON_BYTES = 500
_ABORT = 1 << 31
DEFAULT_MAX_MESSAGE_BYTES = 4 << 30
Buffer = bytes | bytearray | memoryview
Item = memoryview | LinkError


class Header(NamedTuple):
    """What stands before a payload."""

    num_bytes: int
    sequence: int
    checksum: int
    is_abort: bool


def num_frames(num_bytes: int) -> int:
    """Frames of a message; an empty message is not sent at all.

    >>> num_frames(0), num_frames(1), num_frames(1 << 24), num_frames((1 << 24) + 1)
    (0, 1, 1, 2)
    """
    return -(-num_bytes // MAX_FRAME_BYTES)


def framed_bytes(num_bytes: int) -> int:
    """Bytes of a message on the wire, as the predictor counts them.

    >>> framed_bytes(100)
    112
    """
    return num_bytes + FRAME_OVERHEAD_BYTES * num_frames(num_bytes)


def cut(message: memoryview) -> Iterator[memoryview]:
    """The payloads of a message, in order."""
    for start in range(0, len(message), MAX_FRAME_BYTES):
        yield message[start : start + MAX_FRAME_BYTES]


def pack_header(payload: memoryview, sequence: int, is_abort: bool = False) -> bytes:
    """The header of a payload."""
    length = len(payload) | (_ABORT if is_abort else 0)
    return HEADER.pack(length, sequence & 0xFFFFFFFF, _checksum(length, sequence, payload))


def read_header(data: bytes | bytearray | memoryview, sequence: int) -> Header:
    """Read a header and refuse what cannot be true, before anything is allocated for the payload."""
    length, number, checksum = HEADER.unpack(data)
    header = Header(length & ~_ABORT, number, checksum, bool(length & _ABORT))
    limit = MAX_REASON_BYTES if header.is_abort else MAX_FRAME_BYTES
    if not 1 <= header.num_bytes <= limit:
        raise LinkError(
            f"the peer announced a frame of {header.num_bytes} bytes, allowed are 1 to {limit}: "
            "it does not speak thinwire's protocol, or the connection is damaged"
        )
    if number != sequence & 0xFFFFFFFF:
        raise LinkError(
            f"frame {number} came where frame {sequence & 0xFFFFFFFF} was due: the connection is damaged, "
            "start again"
        )
    return header


def check_payload(header: Header, payload: memoryview) -> None:
    """Refuse a payload that is not the one that was sent."""
    length = header.num_bytes | (_ABORT if header.is_abort else 0)
    if _checksum(length, header.sequence, payload) != header.checksum:
        raise LinkError(
            f"the checksum of frame {header.sequence} does not fit its bytes: "
            "the connection is damaged, start again"
        )


def _checksum(length: int, sequence: int, payload: memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<II", length, sequence & 0xFFFFFFFF)))


@dataclass(frozen=True)
class ChannelCounters:
    """Bytes are those on the wire above TLS: payload and frame headers.

    A flight is a change of direction as this party sees it: messages sent in a row are one flight, so are
    messages received in a row.
    """

    sent_bytes: int = 0
    received_bytes: int = 0
    sent_payload_bytes: int = 0
    received_payload_bytes: int = 0
    sent_frames: int = 0
    received_frames: int = 0
    flights: int = 0

    def __sub__(self, earlier: ChannelCounters) -> ChannelCounters:
        return ChannelCounters(
            *(getattr(self, field.name) - getattr(earlier, field.name) for field in fields(self))
        )

    @property
    def total_bytes(self) -> int:
        """Both directions."""
        return self.sent_bytes + self.received_bytes


class Channel(ABC):
    """Two parties hold one end each.

    1. `send` queues a message and returns; it never waits for the peer to receive, so both may send at once.
       The bytes must not change afterwards.
    2. `receive(n)` gives the next message, which has exactly n bytes; another size is an error at once,
       because every size follows from the protocol.
    3. An empty message is neither sent nor counted.

    >>> from thinwire_private.link.channel import memory_pair
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
    def counters(self) -> ChannelCounters:
        """What was sent and received so far."""
        return ChannelCounters(
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

"""ProtocolMessage: one predicted message of a protocol; lists of them are what every cost is summed from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from thinwire_private.link.channel import framed_bytes, num_frames
from thinwire_private.ot.kind import OtKind

SERVER, CLIENT = 0, 1


@dataclass(frozen=True)
class ProtocolMessage:
    """`num_bytes` of payload from party `sender`. Lists are in the order in which the client sees them.

    `crosses`: its sender did not wait for the message before it, which goes the other way.
    `num_ots`: how many 1-of-2 OTs it extends, its sender being their receiver.
    """

    sender: int
    num_bytes: int
    crosses: bool = False
    num_ots: int = 0


def crossing(*sizes: tuple[int, int]) -> tuple[ProtocolMessage, ...]:
    """Pairs of messages that cross: (bytes from the client, bytes from the server) each."""
    pairs = (
        (ProtocolMessage(CLIENT, client), ProtocolMessage(SERVER, server, bool(client)))
        for client, server in sizes
    )
    return tuple(message for pair in pairs for message in pair)


def rows(sender: int, count: int, kind: OtKind, crosses: bool = False) -> ProtocolMessage:
    """The message that extends `count` OTs."""
    return ProtocolMessage(sender, kind.row_bytes(count), crosses, count)


def crossing_rows(from_client: int, from_server: int, kind: OtKind) -> tuple[ProtocolMessage, ...]:
    """Rows of OTs in both directions, crossing."""
    return rows(CLIENT, from_client, kind), rows(SERVER, from_server, kind, bool(from_client))


@dataclass(frozen=True)
class WireTraffic:
    """Bytes on the wire above TLS (payload and frame headers) and how often the direction changes."""

    from_server_bytes: int = 0
    from_client_bytes: int = 0
    frames: int = 0
    flights: int = 0

    @property
    def total_bytes(self) -> int:
        """Both directions."""
        return self.from_server_bytes + self.from_client_bytes

    def __add__(self, other: WireTraffic) -> WireTraffic:
        return WireTraffic(
            self.from_server_bytes + other.from_server_bytes,
            self.from_client_bytes + other.from_client_bytes,
            self.frames + other.frames,
            self.flights + other.flights,
        )


def traffic(messages: Iterable[ProtocolMessage], before: int | None = None) -> WireTraffic:
    """The sum of some messages; `before` is who sent the last message before them.

    >>> traffic([ProtocolMessage(CLIENT, 10), ProtocolMessage(CLIENT, 10), ProtocolMessage(SERVER, 1)])
    WireTraffic(from_server_bytes=13, from_client_bytes=44, frames=3, flights=2)
    """
    sent, frames, flights = [0, 0], 0, 0
    for message in messages:
        if message.num_bytes == 0:
            continue
        sent[message.sender] += framed_bytes(message.num_bytes)
        frames += num_frames(message.num_bytes)
        flights += message.sender != before
        before = message.sender
    return WireTraffic(sent[SERVER], sent[CLIENT], frames, flights)


def hops(messages: Iterable[ProtocolMessage], before: int | None = None) -> int:
    """One-way latencies that messages wait for: flights, but two messages that cross count once.

    >>> hops([*crossing((10, 10)), ProtocolMessage(CLIENT, 1)])
    2
    >>> hops([ProtocolMessage(CLIENT, 1), ProtocolMessage(SERVER, 1)])
    2
    """
    count = 0
    for message in messages:
        if message.num_bytes:
            count += message.sender != before and not message.crosses
            before = message.sender
    return count


def last_sender(messages: Sequence[ProtocolMessage], before: int | None) -> int | None:
    """Who sent last."""
    for message in reversed(messages):
        if message.num_bytes:
            return message.sender
    return before

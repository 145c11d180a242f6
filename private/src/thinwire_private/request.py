"""Requests: what a client asks a server for after the handshake, 8 bytes each."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum

from thinwire.errors import LinkError
from thinwire_private.link.channel import Channel

MAX_BATCH = 1024
_REQUEST = struct.Struct("<B3xI")
REQUEST_BYTES = _REQUEST.size


class Act(IntEnum):
    """PREPARE runs the offline phase of one query ahead of it, QUERY runs a query, BYE ends the session."""

    PREPARE = 1
    QUERY = 2
    BYE = 3


@dataclass(frozen=True)
class Request:
    """An act, for a batch of pictures.

    >>> len(Request(Act.QUERY, 16).to_bytes())
    8
    """

    act: Act
    batch: int = 1

    def to_bytes(self) -> bytes:
        return _REQUEST.pack(self.act, self.batch)

    @staticmethod
    def receive(channel: Channel) -> Request:
        """The next request of the client; refuses what no client may ask."""
        act, batch = _REQUEST.unpack(channel.receive(REQUEST_BYTES))
        if act not in tuple(Act) or not 1 <= batch <= MAX_BATCH:
            raise LinkError(
                f"the client asks for act {act} with {batch} pictures: known are acts 1 to 3 "
                f"with 1 to {MAX_BATCH} pictures"
            )
        return Request(Act(act), batch)

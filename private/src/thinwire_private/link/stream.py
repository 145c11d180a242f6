"""A Channel over a connected socket, plain or TLS."""

from __future__ import annotations

import contextlib
import socket
import struct

import numpy as np

from thinwire.errors import LinkError
from thinwire_private.link.channel import Channel
from thinwire_private.link.frame import MAX_FRAME_BYTES, num_frames
from thinwire_private.link.pump import Pump

DEFAULT_TIMEOUT_S = 60.0
_TCP_BYTES = struct.Struct("<128xQ64xQQ")  # of Linux's tcp_info: bytes received, sent, sent again


class SocketChannel(Channel):
    """One end of a connection; owns the socket and closes it.

    >>> ends = socket.socketpair()
    >>> with SocketChannel(ends[0]) as ours, SocketChannel(ends[1]) as theirs:
    ...     ours.send(b"thin")
    ...     bytes(theirs.receive(4))
    b'thin'
    """

    def __init__(self, sock: socket.socket, timeout_s: float = DEFAULT_TIMEOUT_S) -> None:
        super().__init__()
        with contextlib.suppress(OSError):  # a socket pair is no TCP
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = sock
        self._pump = Pump(sock, timeout_s)

    @property
    def socket_bytes(self) -> int:
        """Bytes of both directions counted at the socket, above TLS: equals counters once all has arrived."""
        return self._pump.sent_bytes + self._pump.received_bytes

    @property
    def tcp_bytes(self) -> int | None:
        """Bytes of both directions that the kernel counted below TLS; None where it does not tell."""
        try:
            info = self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_BYTES.size)
            received, sent, again = _TCP_BYTES.unpack(info)
            return int(received + sent - again)
        except (OSError, AttributeError, struct.error):
            return None

    @property
    def timeout_s(self) -> float:
        """How long the peer may be silent."""
        return self._pump.timeout_s

    @timeout_s.setter
    def timeout_s(self, seconds: float) -> None:
        self._pump.timeout_s = seconds

    def abort(self, reason: str) -> None:
        self._pump.abort(reason)

    def close(self) -> None:
        self._pump.close()

    def _push(self, message: memoryview) -> None:
        self._pump.push(message)

    def _pull(self, num_bytes: int) -> memoryview:
        if num_frames(num_bytes) == 1:
            return self._part(num_bytes)
        whole = np.empty(num_bytes, np.uint8)
        for start in range(0, num_bytes, MAX_FRAME_BYTES):
            due = min(MAX_FRAME_BYTES, num_bytes - start)
            whole[start : start + due] = np.frombuffer(self._part(due), np.uint8)
        return whole.data

    def _part(self, due: int) -> memoryview:
        payload = self._pump.take()
        if len(payload) != due:
            raise LinkError(
                f"the peer sent {len(payload)} bytes where {due} were due: "
                "it runs another version or other parameters"
            )
        return memoryview(payload)

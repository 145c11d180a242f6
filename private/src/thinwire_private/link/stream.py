"""SocketChannel: a Channel over a connected socket, plain or TLS; one thread reads and writes the socket.

One thread serves both directions, so that both parties can send at once: a TLS object may not be used by two
threads. It reads whatever arrives into a queue of checked frames, up to a limit of bytes that nobody has
asked for yet; then it lets TCP hold the peer back.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import ssl
import struct
import threading
import time
from collections import deque
from collections.abc import Callable

import numpy as np

from thinwire.errors import LinkError
from thinwire_private.link.channel import (
    FRAME_OVERHEAD_BYTES,
    MAX_FRAME_BYTES,
    MAX_REASON_BYTES,
    Channel,
    Header,
    check_payload,
    cut,
    num_frames,
    pack_header,
    read_header,
)

MAX_AHEAD_BYTES = 512 << 20  # received, not yet asked for
MAX_QUEUED_BYTES = 64 << 20  # to be sent: above it `push` waits
FAREWELL_S = 2.0  # how long a closing end tries to deliver its last words
_TURN_READS = 64  # reads in a row before it is the turn of writing again
_CLOSED = "the peer has closed the connection"
DEFAULT_TIMEOUT_S = 60.0
_TCP_BYTES = struct.Struct("<128xQ64xQQ")  # of Linux's tcp_info: bytes received, sent, sent again


class Pump:
    """Frames in and out of one socket. Errors of the thread are raised in the caller of `push` and `take`."""

    def __init__(self, sock: socket.socket, timeout_s: float) -> None:
        sock.setblocking(False)
        self._socket, self.timeout_s = sock, timeout_s
        self._changed = threading.Condition()
        self._out: deque[tuple[memoryview, bool]] = deque()  # payload, is it an abort
        self._in: deque[bytearray] = deque()
        self._out_bytes = self._in_bytes = 0
        self._error: LinkError | None = None
        self._closing = False
        self._last_progress = time.monotonic()
        self.sent_bytes = self.received_bytes = 0  # as counted at the socket, above TLS
        self.has_heard = False  # a frame of thinwire's, be it an abort
        self._wake_read, self._wake_write = socket.socketpair()
        self._wake_read.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="thinwire-private-link", daemon=True)
        self._thread.start()

    def push(self, message: memoryview) -> None:
        """Queue a message; waits only while too much is queued."""
        with self._changed:
            self._wait(lambda: self._out_bytes <= MAX_QUEUED_BYTES, "has taken nothing")
            self._out.extend((payload, False) for payload in cut(message))
            self._out_bytes += len(message)
        self._wake()

    def take(self) -> bytearray:
        """The payload of the next frame."""
        with self._changed:
            # What arrived before the end of the connection is still handed out.
            self._wait(lambda: bool(self._in), "has sent nothing")
            payload = self._in.popleft()
            full = self._in_bytes >= MAX_AHEAD_BYTES
            self._in_bytes -= len(payload)
        if full:
            self._wake()
        return payload

    def abort(self, reason: str) -> None:
        """Say why, if the connection still lives, and close."""
        words = memoryview(reason.encode()[:MAX_REASON_BYTES])
        with self._changed:
            if self._error is None:
                self._out.append((words, True))
                self._out_bytes += len(words)
        self.close(FAREWELL_S)

    def close(self, patience_s: float | None = None) -> None:
        """Deliver what is queued, then end the thread and the connection."""
        with self._changed:
            self._closing = True
        self._wake()
        self._thread.join(self.timeout_s if patience_s is None else patience_s)
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(FAREWELL_S)
        for sock in (self._socket, self._wake_read, self._wake_write):
            sock.close()

    def _wait(self, ready: Callable[[], bool], did_nothing: str) -> None:
        """Wait until `ready()`; raise when the thread has failed, or when nothing moves for the time-out."""
        start = time.monotonic()
        while not ready():
            if self._error is not None:
                raise LinkError(str(self._error))
            if self._closing:
                raise LinkError("this end of the connection is closed")
            left = max(start, self._last_progress) + self.timeout_s - time.monotonic()
            if left <= 0:
                raise LinkError(
                    f"the peer {did_nothing} for {self.timeout_s:g} s: it hangs or is cut off; "
                    "raise the time-out if it may take longer"
                )
            self._changed.wait(left)

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # full: it will wake anyway; closed: nobody to wake
            self._wake_write.send(b"\0")

    def _run(self) -> None:
        try:
            _Turns(self).run()
        except LinkError as error:
            self._fail(error)
        except ssl.SSLError as error:
            self._fail(LinkError(f"TLS has failed ({_reason(error)}): check both certificates"))
        except (ConnectionError, OSError):
            self._fail(LinkError(_CLOSED))

    def _fail(self, error: LinkError) -> None:
        with self._changed:
            self._error = error
            self._changed.notify_all()


class _Turns:
    """The loop of the thread: wait, read, write."""

    def __init__(self, pump: Pump) -> None:
        self._pump, self._socket = pump, pump._socket
        self._header = bytearray(FRAME_OVERHEAD_BYTES)
        self._expected: Header | None = None  # the header of the payload being read
        self._target, self._filled = memoryview(self._header), 0
        self._payload = bytearray()
        self._sequence_in = self._sequence_out = 0
        self._unsent = memoryview(b"")
        self._unsent_payload = 0
        self._more = False  # TLS may hold bytes that select does not see

    def run(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._pump._wake_read, selectors.EVENT_READ)
            selector.register(self._socket, selectors.EVENT_READ)
            while not self._finished():
                self._await_turn(selector)
                self._drain_wake()
                if not self._is_full():
                    self._read()
                self._write()

    def _finished(self) -> bool:
        pump = self._pump
        return pump._closing and not pump._out and not self._unsent

    def _is_full(self) -> bool:
        return self._pump._in_bytes >= MAX_AHEAD_BYTES

    def _await_turn(self, selector: selectors.BaseSelector) -> None:
        writing = bool(self._unsent or self._pump._out)
        events = (0 if self._is_full() else selectors.EVENT_READ) | (selectors.EVENT_WRITE if writing else 0)
        registered = selector.get_map().get(self._socket)
        if registered is None and events:
            selector.register(self._socket, events)
        elif registered is not None and not events:
            selector.unregister(self._socket)
        elif registered is not None and registered.events != events:
            selector.modify(self._socket, events)
        selector.select(0 if self._more and not self._is_full() else None)

    def _drain_wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._pump._wake_read.recv(4096)

    def _read(self) -> None:
        self._more = False
        for _ in range(_TURN_READS):
            try:
                count = self._socket.recv_into(self._target[self._filled :])
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            if count == 0:
                inside = self._expected is not None or self._filled > 0
                raise LinkError(f"{_CLOSED} in the middle of a message" if inside else _CLOSED)
            self._filled += count
            self._pump.received_bytes += count
            self._pump._last_progress = time.monotonic()
            if self._filled == len(self._target):
                self._complete()
        self._more = True

    def _complete(self) -> None:
        """A header or a payload is there in full."""
        if self._expected is None:
            self._expected = read_header(self._header, self._sequence_in)
            self._payload = bytearray(self._expected.num_bytes)
            self._target = memoryview(self._payload)
        else:
            check_payload(self._expected, memoryview(self._payload))
            self._pump.has_heard = True
            if self._expected.is_abort:
                raise LinkError(f"the peer stopped: {_printable(self._payload)}")
            self._sequence_in += 1
            with self._pump._changed:
                self._pump._in.append(self._payload)
                self._pump._in_bytes += len(self._payload)
                self._pump._changed.notify_all()
            self._expected, self._target = None, memoryview(self._header)
        self._filled = 0

    def _write(self) -> None:
        while self._unsent or self._next_frame():
            try:
                count = self._socket.send(self._unsent)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            self._unsent = self._unsent[count:]
            self._pump.sent_bytes += count
            self._pump._last_progress = time.monotonic()
            if not self._unsent:
                with self._pump._changed:
                    self._pump._out_bytes -= self._unsent_payload
                    self._pump._changed.notify_all()
                return  # reading has its turn after every frame

    def _next_frame(self) -> bool:
        with self._pump._changed:
            if not self._pump._out:
                return False
            payload, is_abort = self._pump._out.popleft()
        header = pack_header(payload, self._sequence_out, is_abort)
        self._unsent, self._unsent_payload = memoryview(b"".join((header, payload))), len(payload)
        self._sequence_out += 1
        return True


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or "unknown reason").lower().replace("_", " ")


def _printable(payload: bytearray) -> str:
    text = payload.decode(errors="replace")
    return "".join(letter if letter.isprintable() else " " for letter in text)


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
    def has_heard(self) -> bool:
        """Whether the peer has sent a whole frame, be it an abort."""
        return self._pump.has_heard

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

"""A relay that adds a round trip: hands bytes on, each direction half a round trip later, at any rate.

Kernels without netem cannot delay packets. Run between the two parties, on the server's host:

    python -m thinwire_lab.private.relay LISTEN_HOST:PORT SERVER_HOST:PORT ROUND_TRIP_MS
"""

from __future__ import annotations

import contextlib
import queue
import socket
import sys
import threading
import time
from types import TracebackType

from thinwire_private.link.tls import Address, parse_address

CHUNK_BYTES = 256 << 10
MAX_CHUNKS = 1024  # on the way in one direction; then TCP holds the sender back
Chunk = tuple[float, bytes]  # when it is due, and b"" at the end


class Relay:
    """Relays every connection to `target` while its `with` block lasts.

    >>> with Relay(("127.0.0.1", 0), ("127.0.0.1", 9), round_trip_s=0.08) as relay:
    ...     relay.address[0]
    '127.0.0.1'
    """

    def __init__(self, listen: Address, target: Address, round_trip_s: float) -> None:
        self._target, self._delay_s = target, round_trip_s / 2
        self._listener = socket.create_server(listen)
        self.address: Address = self._listener.getsockname()[:2]
        self._open: list[socket.socket] = []

    def __enter__(self) -> Relay:
        threading.Thread(target=self.run, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for sock in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def run(self) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                client = self._listener.accept()[0]
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._open += [client, server]
            for source, sink in ((client, server), (server, client)):
                source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._start(source, sink)

    def _start(self, source: socket.socket, sink: socket.socket) -> None:
        chunks: queue.Queue[Chunk] = queue.Queue(MAX_CHUNKS)
        for act, sock in ((self._read, source), (_write, sink)):
            threading.Thread(target=act, args=(sock, chunks), daemon=True).start()

    def _read(self, source: socket.socket, chunks: queue.Queue[Chunk]) -> None:
        data = b"start"
        while data:
            try:
                data = source.recv(CHUNK_BYTES)
            except OSError:
                data = b""
            chunks.put((time.monotonic() + self._delay_s, data))


def _write(sink: socket.socket, chunks: queue.Queue[Chunk]) -> None:
    with contextlib.suppress(OSError):
        while True:
            due, data = chunks.get()
            time.sleep(max(0.0, due - time.monotonic()))
            if not data:
                sink.shutdown(socket.SHUT_WR)
                return
            sink.sendall(data)


def main() -> None:
    """The command of the module's first lines."""
    listen, target, milliseconds = sys.argv[1:]
    relay = Relay(parse_address(listen), parse_address(target), float(milliseconds) / 1e3)
    print("ready", flush=True)
    relay.run()


if __name__ == "__main__":
    main()

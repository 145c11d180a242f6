"""Server: holds the weights, and serves many clients at once, each in a thread and a session of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from thinwire.errors import LinkError, ThinwireError
from thinwire_private.compiler import prepare_graph
from thinwire_private.errors import ModelError
from thinwire_private.link.handshake import Request, RequestKind, meet_client
from thinwire_private.link.stream import DEFAULT_TIMEOUT_S, SocketChannel
from thinwire_private.link.tls import Address, accept, format_address, listen, server_context
from thinwire_private.net.graph import Graph
from thinwire_private.ot.base import check_requirements
from thinwire_private.sessions import ServerSession, describe, fingerprint
from thinwire_private.variant import VARIANTS, Variant

IDLE_S = 600.0  # between two requests
Tell = Callable[[str], None]


class Server:
    """Serves a model within its `with` block.

    >>> with Server(graph) as server, Client(server.address) as client:          # doctest: +SKIP
    ...     client.predict(x)

    Without a certificate it listens on this machine only. `tell` is given one sentence per event; nothing
    in it is secret.
    """

    def __init__(
        self,
        graph: Graph,
        listen: Address = ("127.0.0.1", 0),
        *,
        variant: Variant = VARIANTS["ours"],
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        client_ca: str | Path | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        max_clients: int = 16,
        tell: Tell = lambda text: None,
    ) -> None:
        check_requirements()
        if not graph.has_weights:
            raise ModelError(
                f"the network {graph.name!r} has no weights, only its public part: serve the whole .twq file"
            )
        if certificate is None and (key is not None or client_ca is not None):
            raise LinkError("a key or an authority for clients needs a certificate beside it: give --cert")
        graph = prepare_graph(graph, variant)
        self._graph, self._variant, self._listen_at = graph, variant, listen
        self._context = (
            None if certificate is None else server_context(certificate, key or certificate, client_ca)
        )
        self._timeout_s, self._max_clients, self._tell = timeout_s, max_clients, tell
        self._description = describe(graph, variant)
        self._fingerprint = fingerprint(graph.public(), variant)
        self._lock = threading.Lock()
        self._channels: dict[int, SocketChannel] = {}
        self._threads: list[threading.Thread] = []
        self._closing = False

    def __enter__(self) -> Server:
        self._listener = listen(self._listen_at, self._context)
        self.address: Address = self._listener.getsockname()[:2]
        accepting = threading.Thread(target=self._accept, name="thinwire-private-accept", daemon=True)
        self._threads = [accepting]
        accepting.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            channels = list(self._channels.values())
        for channel in channels:
            channel.abort("the server is shutting down")
        for thread in self._threads:
            thread.join(self._timeout_s)

    def wait(self) -> None:
        """Serve until the listener is closed or Ctrl-C comes."""
        while self._threads[0].is_alive():
            self._threads[0].join(0.5)

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(
                target=self._serve, args=(connection, format_address(peer[:2])), daemon=True
            )
            self._threads = [self._threads[0], *(one for one in self._threads[1:] if one.is_alive()), thread]
            thread.start()

    def _serve(self, connection: socket.socket, peer: str) -> None:
        """One client, from its first byte to its last."""
        try:
            channel = accept(connection, self._context, self._timeout_s)
        except LinkError as error:
            self._tell(f"{peer}: {error}")
            return
        with self._lock:
            number = max(self._channels, default=0) + 1
            self._channels[number] = channel
            crowded = len(self._channels) > self._max_clients
        try:
            if crowded:
                raise LinkError(f"this server serves {self._max_clients} clients already: try again later")
            self._talk(channel, peer)
            channel.close()
        except ThinwireError as error:
            self._tell(f"{peer}: {error}")
            channel.abort(str(error))
        except Exception as error:
            # Its text could hold numbers of a secret; its kind and place cannot.
            self._tell(f"{peer}: internal error of kind {type(error).__name__}, this client is dropped")
            channel.abort("an internal error of the server")
        finally:
            with self._lock:
                del self._channels[number]

    def _talk(self, channel: SocketChannel, peer: str) -> None:
        terms = meet_client(channel, self._description)
        session_id = terms.confirm(channel, self._fingerprint)
        self._tell(f"{peer}: session {session_id.hex()[:8]} begins")
        session = ServerSession(self._graph, self._variant, channel, session_id)
        session.setup()
        while True:
            channel.timeout_s = IDLE_S
            request = Request.receive(channel)
            channel.timeout_s = self._timeout_s
            if request.act is RequestKind.BYE:
                self._tell(f"{peer}: session {session_id.hex()[:8]} ends after {session.num_queries} queries")
                return
            if request.act is RequestKind.PREPARE:
                session.prepare(request.batch)
            else:
                session.query(request.batch)

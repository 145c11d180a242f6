"""Server: holds the weights, and serves many clients at once, each in a thread and a session of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType

from thinwire.errors import LinkError, ThinwireError
from thinwire_private.compiler import prepare_graph
from thinwire_private.errors import ModelError
from thinwire_private.link.handshake import MAX_BATCH, Request, RequestKind, meet_client
from thinwire_private.link.stream import DEFAULT_TIMEOUT_S, SocketChannel
from thinwire_private.link.tls import Address, accept, format_address, listen, server_context
from thinwire_private.net.graph import Graph
from thinwire_private.ot.base import check_requirements
from thinwire_private.protocols.rlwe_product import FactorCache
from thinwire_private.rings import RLWE, Rings
from thinwire_private.sessions import MemoryLimit, ServerSession, describe, fingerprint
from thinwire_private.variant import VARIANTS, Variant

IDLE_S = 600.0  # between two requests
HELLO_S = 5.0  # TLS and the first words
MAX_WAITING = 32  # connections that have not said hello: when one more comes, the oldest is closed
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Limits:
    """What clients may take: sessions, those of one address, pictures in a query, memory of all queries."""

    max_clients: int = 16
    max_per_peer: int = 8
    max_batch: int = 64
    max_memory: int = 4 << 30

    def __post_init__(self) -> None:
        if min(asdict(self).values()) < 1 or self.max_batch > MAX_BATCH:
            raise ModelError(
                f"limits {asdict(self)} cannot be kept: give at least 1, a batch up to {MAX_BATCH}"
            )


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
        limits: Limits = Limits(),
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
        self._timeout_s, self._limits, self._tell = timeout_s, limits, tell
        self._description = describe(graph, variant)
        self._fingerprint = fingerprint(graph.public(), variant)
        self._factors, self._memory = FactorCache(), MemoryLimit(limits.max_memory)
        self._lock = threading.Lock()
        self._sessions: dict[SocketChannel, str] = {}  # with the address of each
        self._busy: set[SocketChannel] = set()  # in the middle of a request
        self._waiting: dict[socket.socket, None] = {}  # accepted, no hello yet; the oldest first
        self._threads: list[threading.Thread] = []
        self._counts: Counter[str] = Counter()
        self._closing = False

    def __enter__(self) -> Server:
        self._listener = listen(self._listen_at, self._context)
        self.address: Address = self._listener.getsockname()[:2]
        self._began = time.monotonic()
        accepting = threading.Thread(target=self._accept, name="thinwire-private-accept", daemon=True)
        self._threads = [accepting]
        accepting.start()
        threading.Thread(target=self._warm, name="thinwire-private-warm", daemon=True).start()
        return self

    def _warm(self) -> None:
        """Transform weights before the first client needs them."""
        rings = Rings(self._graph, self._variant, 1)
        for layer in self._graph.layers:
            product = rings.rlwe[layer.name] if rings.form(layer) == RLWE else None
            if product is not None and not self._factors.fill(layer, product.packing, lambda: self._closing):
                return

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop(0.0)

    def stop(self, grace_s: float) -> None:
        """Accept nobody, let requests that run finish for so many seconds, then tell all clients and end."""
        self._closing = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        until = time.monotonic() + grace_s
        while time.monotonic() < until and self._busy:
            time.sleep(0.02)
        with self._lock:
            channels, waiting = list(self._sessions), list(self._waiting)
        for handle in waiting:
            _hang_up(handle)
        for channel in channels:
            channel.abort("the server is shutting down")
        for thread in self._threads:
            thread.join(self._timeout_s)

    def wait(self) -> None:
        """Serve until the listener is closed or Ctrl-C comes."""
        while self._threads[0].is_alive():
            self._threads[0].join(0.5)

    def status(self) -> dict[str, float]:
        """Counts since the start, and what is open now; nothing in it is secret."""
        with self._lock:
            now = {"sessions": len(self._sessions), "busy": len(self._busy), "waiting": len(self._waiting)}
        counted = ("sessions", "queries", "pictures", "refused", "failed", "bytes")
        return {
            "uptime_seconds": round(time.monotonic() - self._began, 3),
            **now,
            "memory_reserved_bytes": self._memory.used,
            "factor_cache_bytes": self._factors.used,
            **{f"{name}_total": self._counts[f"{name}_total"] for name in counted},
        }

    def _accept(self) -> None:
        while not self._closing:
            try:
                connection, peer = self._listener.accept()
            except OSError:
                return
            handle = connection.dup()  # TLS takes the socket itself over
            with self._lock:
                oldest = next(iter(self._waiting)) if len(self._waiting) >= MAX_WAITING else None
                self._waiting[handle] = None
            if oldest is not None:
                self._counts["refused_total"] += 1
                self._heard(oldest)
            thread = threading.Thread(target=self._serve, args=(connection, handle, peer[:2]), daemon=True)
            self._threads = [self._threads[0], *(one for one in self._threads[1:] if one.is_alive()), thread]
            thread.start()

    def _heard(self, handle: socket.socket, hang_up: bool = True) -> None:
        """A connection waits no longer: it has said hello, has ended, or must make room."""
        with self._lock:
            if self._waiting.pop(handle, handle) is handle:
                return  # it was heard before
        if hang_up:
            _hang_up(handle)
        handle.close()

    def _serve(self, connection: socket.socket, handle: socket.socket, peer: Address) -> None:
        """One client, from its first byte to its last."""
        name, channel = format_address(peer), None
        try:
            channel = accept(connection, self._context, min(HELLO_S, self._timeout_s))
            terms = meet_client(channel, self._description)
            self._heard(handle, hang_up=False)
            with self._entered(channel, peer[0]):
                self._talk(channel, name, terms.confirm(channel, self._fingerprint))
            channel.close()
        except ThinwireError as error:
            # A sentence about the link may be told to the peer; any other could speak of the model.
            reason = str(error) if isinstance(error, LinkError) else "the server has stopped"
            self._end(channel, f"{name}: {error}", reason)
        except Exception as error:
            # Its text could hold numbers of a secret; its kind and place cannot.
            told = f"{name}: internal error of kind {type(error).__name__}, this client is dropped"
            self._end(channel, told, "an internal error of the server")
        finally:
            self._heard(handle)

    def _end(self, channel: SocketChannel | None, told: str, reason: str) -> None:
        self._counts["failed_total"] += 1
        self._tell(told)
        if channel is not None:
            channel.abort(reason)

    @contextlib.contextmanager
    def _entered(self, channel: SocketChannel, host: str) -> Iterator[None]:
        """A session, if there is room for one."""
        with self._lock:
            own = list(self._sessions.values()).count(host)
            if self._closing:
                raise LinkError("the server is shutting down")
            total, limits = len(self._sessions), self._limits
            if total >= limits.max_clients or own >= limits.max_per_peer:
                self._counts["refused_total"] += 1
                what = f"{total} clients" if total >= limits.max_clients else f"{own} clients of your address"
                raise LinkError(f"this server serves {what} already: try again later")
            self._sessions[channel] = host
        self._counts["sessions_total"] += 1
        try:
            yield
        finally:
            self._counts["bytes_total"] += channel.counters.total_bytes
            with self._lock:
                del self._sessions[channel]
                self._busy.discard(channel)

    def _talk(self, channel: SocketChannel, peer: str, session_id: bytes) -> None:
        channel.timeout_s = self._timeout_s
        self._tell(f"{peer}: session {session_id.hex()[:8]} begins")
        with ServerSession(
            self._graph, self._variant, channel, session_id, self._factors, self._memory
        ) as session:
            session.setup()
            while True:
                channel.timeout_s = IDLE_S
                request = Request.receive(channel, self._limits.max_batch)
                channel.timeout_s = self._timeout_s
                if request.act is RequestKind.BYE:
                    told = f"session {session_id.hex()[:8]} ends after {session.num_queries} queries"
                    self._tell(f"{peer}: {told}")
                    return
                self._act(session, request, channel)

    def _act(self, session: ServerSession, request: Request, channel: SocketChannel) -> None:
        self._busy.add(channel)
        if request.act is RequestKind.PREPARE:
            session.prepare(request.batch)
        else:
            session.query(request.batch)
            self._counts["queries_total"] += 1
            self._counts["pictures_total"] += request.batch
        self._busy.discard(channel)


def _hang_up(handle: socket.socket) -> None:
    with contextlib.suppress(OSError):
        handle.shutdown(socket.SHUT_RDWR)

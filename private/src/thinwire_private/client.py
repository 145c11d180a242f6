"""Client: holds the input, and alone learns the answer."""

from __future__ import annotations

import ssl
import threading
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import ArrayLike

from thinwire.errors import LinkError
from thinwire_private.costs import CostEntry
from thinwire_private.link.handshake import ANY, Request, RequestKind, meet_server
from thinwire_private.link.stream import DEFAULT_TIMEOUT_S
from thinwire_private.link.tls import Address, client_context, connect, parse_address
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.oracle import check_input
from thinwire_private.ot.base import check_requirements
from thinwire_private.program import Watch
from thinwire_private.sessions import ClientSession, fingerprint, read_description


class Client:
    """A session with a server, within its `with` block.

    >>> with Client("127.0.0.1:7000") as client:                                 # doctest: +SKIP
    ...     logits = client.predict(x)

    1. connect, shake hands, learn the public part of the model;  2. setup: base OTs and seeds, once;
    3. `prepare` runs the offline phase of queries before their inputs exist (else `predict` runs it);
    4. `predict` runs the online phase. With `pool`, so many queries of one picture are kept prepared, in idle
       time; the server's --max-memory limits what all its clients hold there.
    """

    def __init__(
        self,
        server: str | Address,
        *,
        ca: str | Path | None = None,
        certificate: str | Path | None = None,
        key: str | Path | None = None,
        expected: str | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        watch: Watch = lambda progress: None,
        pool: int = 0,
    ) -> None:
        check_requirements()
        self._address = parse_address(server) if isinstance(server, str) else server
        self._context: ssl.SSLContext | None = None if ca is None else client_context(ca, certificate, key)
        self._expected, self._timeout_s, self._watch = _digest(expected), timeout_s, watch
        self._turn = threading.RLock()  # one thread speaks at a time
        self._pool = _Pool(self, pool) if pool else None

    def __enter__(self) -> Client:
        self._channel = connect(self._address, self._context, self._timeout_s)
        try:
            self._open()
        except BaseException as error:
            self._leave(error)
            if isinstance(error, LinkError) and self._met_silence():
                raise LinkError(f"{error} (it sent nothing at all: if it uses TLS, give --ca)") from None
            raise
        if self._pool is not None:
            self._pool.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.stop()
        self._leave(error)

    @property
    def handshake_bytes(self) -> int:
        """Bytes of the handshake and of requests, both directions: they are in no table."""
        return self._channel.counters.total_bytes - sum(entry.measured_bytes for entry in self.entries)

    @property
    def tcp_bytes(self) -> int | None:
        """What the kernel counted below TLS, where it tells."""
        return self._channel.tcp_bytes

    @property
    def entries(self) -> list[CostEntry]:
        """What was predicted and measured, operator by operator, of everything so far."""
        return self._session.entries

    def prepare(self, queries: int = 1, batch: int = 1) -> None:
        """Run the offline phase of this many queries of `batch` pictures each."""
        for _ in range(queries):
            with self._turn:
                self._ask(RequestKind.PREPARE, batch)
                self._session.prepare(batch)

    def predict(self, x: ArrayLike) -> IntArray:
        """The output for integer pictures x, (C, H, W) or (N, C, H, W): N rows of logits, or classes."""
        pictures = check_input(self.graph, np.asarray(x))
        with self._turn:
            if not self._session.is_prepared(len(pictures)):
                self.prepare(1, len(pictures))
            self._ask(RequestKind.QUERY, len(pictures))
            answer = self._session.query(pictures)
        if self._pool is not None:
            self._pool.refill()
        return answer

    @property
    def num_prepared(self) -> int:
        """Queries of one picture whose offline phase is done."""
        return self._session.num_prepared(1)

    def _open(self) -> None:
        terms = meet_server(self._channel, self._expected)
        self.graph, self.variant = read_description(terms.description)
        session_id = terms.confirm(self._channel, fingerprint(self.graph, self.variant))
        self._session = ClientSession(self.graph, self.variant, self._channel, session_id, self._watch)
        self._session.setup()

    def _met_silence(self) -> bool:
        """Whether a server was called without TLS and said nothing that thinwire says."""
        return self._context is None and not self._channel.has_heard

    def _ask(self, act: RequestKind, batch: int = 1) -> None:
        self._session.ask(Request(act, batch))

    def _leave(self, error: BaseException | None) -> None:
        if error is None:
            self._channel.send(Request(RequestKind.BYE).to_bytes())
            self._channel.close()
        else:
            # Sentences about the link may be told; any other could speak of the input.
            self._channel.abort(str(error) if isinstance(error, LinkError) else "the client has stopped")


class _Pool:
    """Keeps queries prepared, in a thread of its own that works while nobody asks."""

    def __init__(self, client: Client, size: int) -> None:
        self._client, self._size = client, size
        self._wanted, self._stopping = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="thinwire-private-pool", daemon=True)

    def start(self) -> None:
        self._wanted.set()
        self._thread.start()

    def refill(self) -> None:
        """A query was used."""
        self._wanted.set()

    def stop(self) -> None:
        self._stopping = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._wanted.wait()
            self._wanted.clear()
            while self._client.num_prepared < self._size and not self._stopping:
                try:
                    self._client.prepare()
                except LinkError:
                    return  # the next predict meets it, too
            if self._stopping:
                return


def _digest(expected: str | None) -> bytes:
    if expected is None:
        return ANY
    try:
        digest = bytes.fromhex(expected)
    except ValueError:
        digest = b""
    if len(digest) != len(ANY):
        raise LinkError(
            f'"{expected}" does not name a model: give the 64 hexadecimal digits that the server prints'
        )
    return digest

"""A server that one can leave running: health and metrics on loopback, JSON logs, a graceful stop.

    GET /health    200 {"status": "ok"}, or 503 {"status": "stopping"}
    GET /metrics   counts in Prometheus' text format

Logs, metrics and health hold addresses, counts and sentences of thinwire's own; no input, no weight, no key.
"""

from __future__ import annotations

import ctypes
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType

from thinwire.errors import LinkError
from thinwire_private.link.tls import Address, format_address, is_loopback
from thinwire_private.server import Server

Say = Callable[[str], None]
GRACE_S = 30.0
_REQUEST_S = 5.0
_M_ARENA_MAX = -8  # of malloc.h


def metrics_text(status: dict[str, float]) -> str:
    """Prometheus' text format.

    >>> print(metrics_text({"queries_total": 3}), end="")
    # TYPE thinwire_private_queries_total counter
    thinwire_private_queries_total 3
    """
    lines = []
    for name, value in status.items():
        kind = "counter" if name.endswith("_total") else "gauge"
        lines += [f"# TYPE thinwire_private_{name} {kind}", f"thinwire_private_{name} {value}"]
    return "\n".join(lines) + "\n"


def log_line(text: str) -> str:
    """An event as a line of JSON."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return json.dumps({"time": now, "event": text})


class Endpoint:
    """Health and metrics of a server over HTTP, on this machine only, within its `with` block."""

    def __init__(self, server: Server, listen: Address) -> None:
        if not is_loopback(listen[0]):
            raise LinkError(
                f"metrics on {format_address(listen)} could be read from other machines: use 127.0.0.1"
            )
        self.stopping = threading.Event()
        try:
            self._http = ThreadingHTTPServer(listen, _handler(server, self.stopping))
        except OSError as error:
            raise LinkError(
                f"metrics cannot be given at {format_address(listen)} ({error.strerror}): choose another port"
            ) from None
        self._http.daemon_threads = True
        self.address: Address = self._http.server_address[:2]  # type: ignore[assignment]

    def __enter__(self) -> Endpoint:
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.1,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()


def _handler(server: Server, stopping: threading.Event) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = _REQUEST_S

        def do_GET(self) -> None:
            if self.path == "/health":
                word = "stopping" if stopping.is_set() else "ok"
                self._reply(503 if stopping.is_set() else 200, json.dumps({"status": word}) + "\n")
            elif self.path == "/metrics":
                self._reply(200, metrics_text(server.status()))
            else:
                self._reply(404, "known are /health and /metrics\n")

        def _reply(self, code: int, text: str) -> None:
            data = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", "text/plain; charset=utf-8")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Requests for metrics are not events."""

    return Handler


def keep_memory_flat() -> None:
    """Two arenas for all threads: glibc gives every thread one and keeps what a session has freed in it."""
    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set; the handlers before are put back."""
    stop = threading.Event()

    def note(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {number: signal.signal(number, note) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def run_service(server: Server, metrics: Address | None, grace_s: float, say: Say) -> None:
    """Serve until a signal comes, then let running requests finish for `grace_s` seconds."""
    with stop_on_signals() as stop:
        if metrics is None:
            stop.wait()
        else:
            with Endpoint(server, metrics) as endpoint:
                say(f"health and metrics on http://{format_address(endpoint.address)}")
                stop.wait()
                endpoint.stopping.set()
                _finish(server, grace_s, say)
                return
        _finish(server, grace_s, say)


def _finish(server: Server, grace_s: float, say: Say) -> None:
    say(f"stopping: running requests have {grace_s:g} s")
    server.stop(grace_s)
    say("stopped")

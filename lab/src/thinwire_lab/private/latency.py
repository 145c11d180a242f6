"""Latency: both ends of the ladder over links of some rate and round trip, interleaved.

Kernels without netem cannot delay packets, so a relay adds the round trip: it hands bytes on, each direction
half a round trip later, at any rate. It runs between the two parties, on the server's host:

    python -m thinwire_lab.private.latency LISTEN_HOST:PORT SERVER_HOST:PORT ROUND_TRIP_MS
"""

from __future__ import annotations

import contextlib
import queue
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from thinwire.errors import PrivateError
from thinwire_lab.net.netlab import Netlab
from thinwire_lab.private.ladder import Rung, calm_picture, rungs_named, runnable, summary
from thinwire_lab.private.parties import BenchClient, BenchServer, command, run_parties
from thinwire_lab.private.records import BenchOptions, Row, Say
from thinwire_private.compiler import prepare_graph
from thinwire_private.link.tls import Address, parse_address, write_certificates

CHUNK_BYTES = 256 << 10
MAX_CHUNKS = 1024  # on the way in one direction; then TCP holds the sender back
Chunk = tuple[float, bytes]  # when it is due, and b"" at the end
PORTS = (7001, 7002)  # server, relay: a lab's ports are its own
ENDS = ("B0", "ours", "ours-wan")
_PIPES: dict[str, Any] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
}


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


@dataclass(frozen=True)
class ShapedLink:
    """Rate as netlab writes it, or None: loopback; round trip added by a relay, 0: no relay."""

    rate: str | None
    round_trip_ms: float

    @staticmethod
    def read(text: str) -> ShapedLink:
        """From a text: rate and round trip in ms.

        >>> ShapedLink.read("320mbit/2"), ShapedLink.read("unshaped/80")
        (ShapedLink(rate='320mbit', round_trip_ms=2), ShapedLink(rate=None, round_trip_ms=80))
        """
        rate, _, trip = text.partition("/")
        if not trip.isdigit():
            raise PrivateError(f'link "{text}" cannot be read: write 320mbit/2 or unshaped/80')
        return ShapedLink(None if rate == "unshaped" else rate, int(trip))


LINKS = (
    ShapedLink("320mbit", 2),
    ShapedLink(None, 0),
    ShapedLink("320mbit", 80),
    ShapedLink(None, 2),
    ShapedLink(None, 80),
)


def latency(options: BenchOptions, say: Say) -> Iterator[Row]:
    """One row per network, link and end: the median of repeats."""
    links = LINKS if options.links is None else tuple(map(ShapedLink.read, options.links))
    for net in runnable(options.nets):
        for link in links:
            rungs = rungs_named(options.variants or ENDS, options.models)
            times: dict[str, list[Row]] = {rung.name: [] for rung in rungs}
            for repeat in range(options.repeats):
                for rung in rungs:
                    settings = {"net": net, "rung": rung.name, **asdict(link), "repeat": repeat}
                    say(
                        f"{net} {rung.name} {link.rate or 'unshaped'} {link.round_trip_ms:g} ms, {repeat + 1}"
                    )
                    times[rung.name].append(options.once("latency", settings, timed, rung, link, net))
            for name, runs in times.items():
                yield _row(net, link, name, runs)


def timed(rung: Rung, link: ShapedLink, net: str) -> Row:
    """One picture, cold: set-up, offline and online."""
    graph = rung.graph(net)
    x, _ = calm_picture(prepare_graph(graph, rung.variant))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        files = write_certificates(folder, ["127.0.0.1", "10.77.0.1"])
        host = BenchServer("", rung.name, certificate=str(files["server.pem"]), key=str(files["server.key"]))
        visitor = BenchClient("", "", "", ca=str(files["ca.pem"]))
        if link.rate is None:
            reach = _Relayed(link.round_trip_ms, None)
            run = run_parties(folder, graph, x, host, visitor, reach=reach)
        else:
            lab = stack.enter_context(Netlab(hosts=2, rate=link.rate))
            host = BenchServer(
                **{**vars(host), "listen": f"{lab.addresses[0]}:{PORTS[0]}"},
            )

            def start(party: int, settings: str) -> subprocess.Popen[str]:
                return lab.popen(party, command(party, settings), **_PIPES)

            run = run_parties(folder, graph, x, host, visitor, start, reach=_Relayed(link.round_trip_ms, lab))
    if run.client["mismatches"]:
        raise PrivateError(f"{net} {rung.name}: the private answer is not the plaintext one")
    return summary(run)


class _Relayed:
    """Puts a relay before the server's address, if there is a round trip to add."""

    def __init__(self, round_trip_ms: float, lab: Netlab | None) -> None:
        self._round_trip_ms, self._lab = round_trip_ms, lab

    @contextlib.contextmanager
    def __call__(self, address: str) -> Iterator[str]:
        if self._round_trip_ms == 0:
            yield address
            return
        listen = f"{address.rpartition(':')[0]}:{PORTS[1]}"
        words = [sys.executable, "-m", "thinwire_lab.private.latency", listen, address]
        words.append(str(self._round_trip_ms))
        start: Any = subprocess.Popen if self._lab is None else partial(self._lab.popen, 0)
        relay = start(words, **_PIPES)
        try:
            assert relay.stdout is not None
            relay.stdout.readline()
            yield listen
        finally:
            relay.kill()
            relay.wait()


def _row(net: str, link: ShapedLink, name: str, runs: Sequence[Row]) -> Row:
    seconds = [run["seconds"] for run in runs]
    return {
        "net": net,
        "variant": name,
        "rate": link.rate or "unshaped",
        "round_trip_ms": link.round_trip_ms,
        "seconds": statistics.median(seconds),
        "seconds_low": min(seconds),
        "seconds_high": max(seconds),
        "online_seconds": statistics.median(run["online_seconds"] for run in runs),
        "bytes": runs[0]["bytes"],
        "flights": runs[0]["flights"],
        "repeats": len(runs),
    }


if __name__ == "__main__":
    main()

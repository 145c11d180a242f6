"""Latency: both ends of the ladder over links of some rate and round trip, interleaved."""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from thinwire.errors import PrivateError
from thinwire_lab.net.netlab import Netlab
from thinwire_lab.private.computed import runnable
from thinwire_lab.private.host import Host
from thinwire_lab.private.ladder import calm_picture, summary
from thinwire_lab.private.parties import command, run_parties
from thinwire_lab.private.rungs import Rung, rungs_named
from thinwire_lab.private.visitor import Visitor
from thinwire_lab.private.wishes import Row, Say, Wishes
from thinwire_private.link.tls import write_certificates
from thinwire_private.program import prepare_graph

PORTS = (7001, 7002)  # server, relay: a lab's ports are its own
ENDS = ("B0", "ours", "ours-wan")


@dataclass(frozen=True)
class Link:
    """Rate as netlab writes it, or None: loopback; round trip added by a relay, 0: no relay."""

    rate: str | None
    round_trip_ms: float

    @staticmethod
    def read(text: str) -> Link:
        """From a text: rate and round trip in ms.

        >>> Link.read("320mbit/2"), Link.read("unshaped/80")
        (Link(rate='320mbit', round_trip_ms=2), Link(rate=None, round_trip_ms=80))
        """
        rate, _, trip = text.partition("/")
        if not trip.isdigit():
            raise PrivateError(f'link "{text}" cannot be read: write 320mbit/2 or unshaped/80')
        return Link(None if rate == "unshaped" else rate, int(trip))


LINKS = (Link("320mbit", 2), Link(None, 0), Link("320mbit", 80), Link(None, 2), Link(None, 80))


def latency(wishes: Wishes, say: Say) -> Iterator[Row]:
    """One row per network, link and end: the median of repeats."""
    links = LINKS if wishes.links is None else tuple(map(Link.read, wishes.links))
    for net in runnable(wishes.nets):
        for link in links:
            rungs = rungs_named(wishes.variants or ENDS, wishes.models)
            times: dict[str, list[Row]] = {rung.name: [] for rung in rungs}
            for repeat in range(wishes.repeats):
                for rung in rungs:
                    settings = {"net": net, "rung": rung.name, **asdict(link), "repeat": repeat}
                    say(
                        f"{net} {rung.name} {link.rate or 'unshaped'} {link.round_trip_ms:g} ms, {repeat + 1}"
                    )
                    times[rung.name].append(wishes.once("latency", settings, timed, rung, link, net))
            for name, runs in times.items():
                yield _row(net, link, name, runs)


def timed(rung: Rung, link: Link, net: str) -> Row:
    """One picture, cold: set-up, offline and online."""
    graph = rung.graph(net)
    x, _ = calm_picture(prepare_graph(graph, rung.variant))
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        files = write_certificates(folder, ["127.0.0.1", "10.77.0.1"])
        host = Host("", rung.name, certificate=str(files["server.pem"]), key=str(files["server.key"]))
        visitor = Visitor("", "", "", ca=str(files["ca.pem"]))
        if link.rate is None:
            reach = _Relayed(link.round_trip_ms, None)
            run = run_parties(folder, graph, x, host, visitor, reach=reach)
        else:
            lab = stack.enter_context(Netlab(hosts=2, rate=link.rate))
            host = Host(
                **{**vars(host), "listen": f"{lab.addresses[0]}:{PORTS[0]}"},
            )

            def start(party: int, module: str, settings: str) -> subprocess.Popen[str]:
                return lab.popen(party, command(module, settings), **_PIPES)

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
        words = [sys.executable, "-m", "thinwire_lab.private.relay", listen, address]
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


_PIPES: dict[str, Any] = {
    "stdin": subprocess.PIPE,
    "stdout": subprocess.PIPE,
    "stderr": subprocess.PIPE,
    "text": True,
}


def _row(net: str, link: Link, name: str, runs: Sequence[Row]) -> Row:
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

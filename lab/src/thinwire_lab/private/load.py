"""A load on a server: clients come and go, some are killed in the middle of a query; nothing may be lost.

Every query has a client process of its own. A killed one is asked again by another client. At the end every
answer equals the oracle's, the server has no session and no memory reserved, and it has not grown.
"""

from __future__ import annotations

import queue
import random
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from thinwire.errors import PrivateError
from thinwire_lab.private.parties import BenchClient, Forked, client_result
from thinwire_lab.private.records import BenchOptions, Row, Say
from thinwire_private.link.tls import format_address
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build, random_pictures, with_random_weights
from thinwire_private.server import Limits, Server
from thinwire_private.service import Endpoint, keep_memory_flat

CLIENTS, QUERIES, EVERY = 8, 100, 10


class LoadTest:
    """So many queries by so many clients at once; of every `every` queries the client of one is killed."""

    def __init__(self, server: str, folder: Path, clients: int, queries: range, every: int) -> None:
        self._visitor = BenchClient(server, "", str(folder / "y.npy"), timeout_s=120.0)
        self._folder, self._clients, self._every = folder, clients, every
        self._todo: queue.SimpleQueue[int] = queue.SimpleQueue()
        for number in queries:
            self._todo.put(number)
        self._lock = threading.Lock()
        self.answered, self.wrong, self.killed = 0, 0, 0
        self.failures: list[str] = []

    def run(self) -> None:
        """All queries."""
        threads = [threading.Thread(target=self._work, args=(seed,)) for seed in range(self._clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self, seed: int) -> None:
        dice = random.Random(seed)
        while True:
            try:
                number = self._todo.get_nowait()
            except queue.Empty:
                return
            if number % self._every == self._every - 1:
                self._kill_one(number, dice.uniform(0.05, 0.6))
            self._ask(number)

    def _settings(self, number: int) -> str:
        x, y = (str(self._folder / f"{name}{number}.npy") for name in "xy")
        return replace(self._visitor, inputs=x, expected=y).to_json()

    def _kill_one(self, number: int, after_s: float) -> None:
        victim = Forked(1, self._settings(number))
        time.sleep(after_s)
        victim.kill()
        victim.wait()
        victim.stdin.close()
        victim.stdout.close()
        with self._lock:
            self.killed += 1

    def _ask(self, number: int) -> None:
        try:
            result = client_result(Forked(1, self._settings(number)))
        except PrivateError as error:
            with self._lock:
                self.failures.append(str(error))
            return
        with self._lock:
            self.answered += 1
            self.wrong += result["mismatches"]


def load_once(graph: Graph, clients: int, queries: int, every: int) -> Row:
    """One load on a server of this process, with its endpoint asked all the while."""
    keep_memory_flat()
    pictures = random_pictures(graph, queries)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for number, (x, y) in enumerate(zip(pictures, oracle.run(graph, pictures), strict=True)):
            np.save(folder / f"x{number}.npy", x[None])
            np.save(folder / f"y{number}.npy", y[None])
        limits = Limits(max_clients=2 * clients, max_per_peer=2 * clients)
        with (
            Server(graph, timeout_s=120.0, limits=limits) as server,
            Endpoint(server, ("127.0.0.1", 0)) as http,
        ):
            address = format_address(server.address)
            _warmed(address, folder, clients)
            memory, began = [resident_mb()], time.perf_counter()
            loads = [LoadTest(address, folder, clients, part, every) for part in _quarters(queries)]
            for load in loads:
                load.run()
                after = _at_rest(server)
                memory.append(resident_mb())
            seconds = time.perf_counter() - began
            url = f"http://{format_address(http.address)}/health"
            with urllib.request.urlopen(url, timeout=60) as reply:
                healthy = reply.status == 200
    return {
        "net": graph.name,
        "clients": clients,
        "queries": queries,
        "answered": sum(load.answered for load in loads),
        "wrong": sum(load.wrong for load in loads),
        "killed": sum(load.killed for load in loads),
        "failures": sum(len(load.failures) for load in loads),
        "sessions_left": after["sessions"],
        "memory_reserved_left": after["memory_reserved_bytes"],
        "healthy": healthy,
        "memory_mb": memory,
        "seconds": round(seconds, 1),
    }


def _warmed(address: str, folder: Path, clients: int) -> None:
    """A first round, so that caches and arenas have their size before memory is compared."""
    LoadTest(address, folder, clients, range(clients), clients + 1).run()


def _quarters(queries: int) -> list[range]:
    """All queries in four parts, after each of which memory is looked at."""
    step = -(-queries // 4)
    return [range(start, min(queries, start + step)) for start in range(0, queries, step)]


def _at_rest(server: Server) -> dict[str, float]:
    for _ in range(500):
        status = server.status()
        if not status["sessions"]:
            break
        time.sleep(0.02)
    return status


def resident_mb() -> float:
    """Memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return round(pages * 4096 / 1e6, 1)


def load(options: BenchOptions, say: Say) -> Iterator[Row]:
    """8 clients, 100 queries, one killed every ten."""
    graph = with_random_weights(build("digits", read_bits("W4A6")))
    say(f"{QUERIES} queries by {CLIENTS} clients")
    settings = {"net": "digits", "clients": CLIENTS, "queries": QUERIES, "every": EVERY}
    yield options.once("load", settings, load_once, graph, CLIENTS, QUERIES, EVERY)

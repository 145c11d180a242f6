r"""Parties: a server and a client as two processes that share only a socket.

    python -m thinwire_lab.private.parties 0 '{"model": "m.twq", "variant": "ours", "listen": "127.0.0.1:0"}'
    python -m thinwire_lab.private.parties 1 \
      '{"server": "127.0.0.1:7000", "inputs": "x.npy", "expected": "y.npy"}'
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

import numpy as np

from thinwire.errors import PrivateError
from thinwire_private.client import Client
from thinwire_private.compiler import prepare_graph
from thinwire_private.costs import CostEntry, added
from thinwire_private.link.tls import format_address, parse_address
from thinwire_private.message import CLIENT, SERVER
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.twq import QuantizedModel, read_twq, write_twq
from thinwire_private.program import QueryProgress
from thinwire_private.server import Limits, Server
from thinwire_private.variant import variant

Row = dict[str, Any]
Tell = Callable[[Row], None]


def usage() -> dict[str, float]:
    """CPU seconds of all threads, and the most memory it ever held."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
        "peak_memory_mb": round(used.ru_maxrss * 1024 / 1e6, 1),
    }


@dataclass(frozen=True)
class BenchServer:
    """The server's process of a bench: serves a model file until its standard input ends.

    Prints JSON lines: its address, what happens, and at the end its CPU seconds and peak memory.
    """

    model: str
    variant: str
    listen: str = "127.0.0.1:0"
    certificate: str | None = None
    key: str | None = None
    timeout_s: float = 600.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def run(self) -> None:
        server = Server(
            read_twq(Path(self.model)).graph,
            parse_address(self.listen),
            variant=variant(self.variant),
            certificate=self.certificate,
            key=self.key,
            timeout_s=self.timeout_s,
            limits=Limits(max_batch=1024, max_memory=1 << 40),
            tell=lambda text: _say({"row": "event", "text": text}),
        )
        with server:
            _say({"row": "listening", "address": format_address(server.address)})
            sys.stdin.read()
        _say({"row": "usage", **usage()})


@dataclass(frozen=True)
class BenchClient:
    """The client's process of a bench: private predictions, compared with the plaintext ones.

    `inputs` (N, C, H, W), `batch` pictures a query. Prints one JSON line per query while it runs, then one
    with all costs.
    """

    server: str
    inputs: str
    expected: str
    batch: int = 1
    ahead: bool = False  # prepare all queries before the first one is asked
    ca: str | None = None
    timeout_s: float = 600.0
    progress: bool = False  # print a line every few seconds

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def run(self) -> None:
        inputs, expected = np.load(self.inputs), np.load(self.expected)
        start = time.perf_counter()
        mismatches, queries = 0, []
        watch = _Reporter() if self.progress else lambda progress: None
        with Client(self.server, ca=self.ca, timeout_s=self.timeout_s, watch=watch) as client:
            ready_s = time.perf_counter() - start
            if self.ahead:
                client.prepare(-(-len(inputs) // self.batch), self.batch)
            for place in range(0, len(inputs), self.batch):
                asked = time.perf_counter()
                answer = client.predict(inputs[place : place + self.batch])
                wrong = int((answer != expected[place : place + self.batch]).any(axis=1).sum())
                mismatches += wrong
                queries.append({"seconds": time.perf_counter() - asked, "wrong": wrong})
                _say({"row": "query", "done": place + len(answer), "of": len(inputs), **queries[-1]})
            result = {
                "row": "result",
                "images": len(inputs),
                "mismatches": mismatches,
                "seconds": time.perf_counter() - start,
                "ready_seconds": ready_s,
                "queries": queries,
                "handshake_bytes": client.handshake_bytes,
                "tcp_bytes": client.tcp_bytes,
                "entries": [asdict(entry) for entry in client.entries],
            }
        _say({**result, **usage()})


class _Reporter:
    """Prints how far a query is, every few seconds."""

    def __init__(self, every_s: float = 5.0) -> None:
        self._every_s, self._next = every_s, 0.0

    def __call__(self, progress: QueryProgress) -> None:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + self._every_s
            _say({"row": "progress", "text": str(progress)})


class Forked:
    """A party as a process forked off a process that has imported everything and computed nothing.

    Importing torch takes seconds, and a ladder starts dozens of parties. The two parties share no memory. Has
    what runs need of subprocess.Popen.
    """

    def __init__(self, party: int, settings: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload([__name__])
        theirs_in, ours_in = context.Pipe(duplex=False)
        ours_out, theirs_out = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(party, settings, theirs_in, theirs_out), daemon=True
        )
        self._process.start()
        theirs_in.close()
        theirs_out.close()
        self.stdin = os.fdopen(os.dup(ours_in.fileno()), "w")
        self.stdout = os.fdopen(os.dup(ours_out.fileno()))
        ours_in.close()
        ours_out.close()
        self.stderr = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """The exit code, waited for."""
        self._process.join()
        return self._process.exitcode or 0

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()


def _run(party: int, settings: str, stdin: Connection, stdout: Connection) -> None:
    sys.stdin = os.fdopen(os.dup(stdin.fileno()))
    sys.stdout = os.fdopen(os.dup(stdout.fileno()), "w")
    stdin.close()
    stdout.close()
    try:
        _play(party, settings)
    except BaseException:
        print(json.dumps({"row": "failed", "text": traceback.format_exc().strip().splitlines()[-1]}))
        sys.stdout.flush()
        sys.exit(1)
    sys.stdout.flush()


Process = subprocess.Popen[str] | Forked
Start = Callable[[int, str], Process]  # party 0 is the server; its settings


@dataclass(frozen=True)
class PartiesRun:
    """What two processes made of it."""

    client: Row
    server: Row

    @property
    def entries(self) -> list[CostEntry]:
        """The client's costs, added up over queries."""
        return added(CostEntry(**row) for row in self.client["entries"])


def start_here(party: int, settings: str) -> Process:
    """A process on this machine."""
    return Forked(party, settings)


def run_parties(
    folder: Path,
    graph: Graph,
    x: IntArray,
    host: BenchServer,
    visitor: BenchClient,
    start: Start = start_here,
    tell: Tell = lambda row: None,
    reach: Callable[[str], contextlib.AbstractContextManager[str]] = contextlib.nullcontext,
) -> PartiesRun:
    """Write model and inputs to `folder`, start both processes, and compare with the oracle of the variant.

    `reach` may put a relay between: it is given the server's address and yields the one to call.
    """
    write_twq(folder / "model.twq", QuantizedModel(graph))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", oracle.run(prepare_graph(graph, variant(host.variant)), x))
    host = replace(host, model=str(folder / "model.twq"))
    server = start(SERVER, host.to_json())
    with _ended(server):
        address = next(row["address"] for row in _rows(server) if row["row"] == "listening")
        with reach(address) as called:
            visitor = replace(
                visitor, server=called, inputs=str(folder / "x.npy"), expected=str(folder / "y.npy")
            )
            client = start(CLIENT, visitor.to_json())
            with _ended(client):
                result = _last(client, "result", tell)
        _pipe(server.stdin).close()
        used = _last(server, "usage", lambda row: None)
    return PartiesRun(result, used)


def client_result(process: Process) -> Row:
    """What a client's process found; raises PrivateError with its last words if it failed.

    Its exit code does not count: where several threads start processes, Python may read one's code twice.
    """
    words = "it said nothing"
    with _ended(process):
        for line in _pipe(process.stdout):
            row: Row = json.loads(line)
            if row["row"] == "result":
                return row
            words = row.get("text", words)
    raise PrivateError(f"a party of the run failed: {words}")


def command(party: int, settings: str) -> list[str]:
    """The command line of a party."""
    return [sys.executable, "-m", "thinwire_lab.private.parties", str(party), settings]


def _play(party: int, settings: str) -> None:
    """Be a party: the settings are JSON."""
    (BenchServer, BenchClient)[party](**json.loads(settings)).run()


def _rows(process: Process) -> Iterator[Row]:
    """The JSON lines of a process; raises with its last words when it fails."""
    words = ["it said nothing"]
    for line in _pipe(process.stdout):
        row = json.loads(line)
        words = [row["text"]] if row["row"] == "failed" else words
        yield row
    if process.wait() != 0:
        if process.stderr is not None:
            words = process.stderr.read().strip().splitlines() or words
        raise PrivateError(f"a party of the run failed: {words[-1]}")


def _last(process: Process, kind: str, tell: Tell) -> Row:
    found = None
    for row in _rows(process):
        tell(row)
        if row["row"] == kind:
            found = row
    if found is None:
        raise PrivateError("a party of the run ended without a result")
    return found


@contextlib.contextmanager
def _ended(process: Process) -> Iterator[None]:
    try:
        yield
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _pipe(pipe: IO[str] | None) -> IO[str]:
    assert pipe is not None
    return pipe


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    _play(int(sys.argv[1]), sys.argv[2])

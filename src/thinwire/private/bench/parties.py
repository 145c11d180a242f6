"""Parties: a server and a client as two processes that share nothing but the socket."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from thinwire.errors import PrivateError
from thinwire.private.bench.host import Host
from thinwire.private.bench.visitor import Visitor
from thinwire.private.ledger import Entry, added
from thinwire.private.net import oracle
from thinwire.private.net.graph import Graph
from thinwire.private.net.twq import Model, write_twq
from thinwire.private.net.value import IntArray
from thinwire.private.program import prepare_graph
from thinwire.private.variant import variant

Row = dict[str, Any]
Start = Callable[[int, Sequence[str]], "subprocess.Popen[str]"]  # party 0 is the server
Tell = Callable[[Row], None]


@dataclass(frozen=True)
class Run:
    """What two processes made of it."""

    client: Row
    server: Row

    @property
    def entries(self) -> list[Entry]:
        """The client's ledger, added up over queries."""
        return added(Entry(**row) for row in self.client["entries"])


def start_here(party: int, command: Sequence[str]) -> subprocess.Popen[str]:
    """A process on this machine."""
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run_parties(
    folder: Path,
    graph: Graph,
    x: IntArray,
    host: Host,
    visitor: Visitor,
    start: Start = start_here,
    tell: Tell = lambda row: None,
    reach: Callable[[str], contextlib.AbstractContextManager[str]] = contextlib.nullcontext,
) -> Run:
    """Write model and inputs to `folder`, start both processes, and compare with the oracle of the variant.

    `reach` may put a relay between: it is given the server's address and yields the one to call.
    """
    write_twq(folder / "model.twq", Model(graph))
    np.save(folder / "x.npy", x)
    np.save(folder / "y.npy", oracle.run(prepare_graph(graph, variant(host.variant)), x))
    host = replace(host, model=str(folder / "model.twq"))
    server = start(0, _command("host", host.to_json()))
    with _ended(server):
        address = next(row["address"] for row in _rows(server) if row["row"] == "listening")
        with reach(address) as called:
            visitor = replace(
                visitor, server=called, inputs=str(folder / "x.npy"), expected=str(folder / "y.npy")
            )
            client = start(1, _command("visitor", visitor.to_json()))
            with _ended(client):
                result = _last(client, "result", tell)
        _pipe(server.stdin).close()
        used = _last(server, "usage", lambda row: None)
    return Run(result, used)


def _command(module: str, settings: str) -> list[str]:
    return [sys.executable, "-m", f"thinwire.private.bench.{module}", settings]


def _rows(process: subprocess.Popen[str]) -> Iterator[Row]:
    """The JSON lines of a process; raises with its last words when it fails."""
    for line in _pipe(process.stdout):
        yield json.loads(line)
    if process.wait() != 0:
        words = _pipe(process.stderr).read().strip().splitlines()
        raise PrivateError(f"a party of the run failed: {words[-1] if words else 'it said nothing'}")


def _last(process: subprocess.Popen[str], kind: str, tell: Tell) -> Row:
    found = None
    for row in _rows(process):
        tell(row)
        if row["row"] == kind:
            found = row
    if found is None:
        raise PrivateError("a party of the run ended without a result")
    return found


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str]) -> Iterator[None]:
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

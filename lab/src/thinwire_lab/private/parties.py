"""Parties: a server and a client as two processes that share nothing but the socket."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any

import numpy as np

from thinwire.errors import PrivateError
from thinwire_lab.private.forked import Forked
from thinwire_lab.private.host import Host
from thinwire_lab.private.visitor import Visitor
from thinwire_private.costs import Entry, added
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.twq import Model, write_twq
from thinwire_private.program import prepare_graph
from thinwire_private.variant import variant

Row = dict[str, Any]
Process = subprocess.Popen[str] | Forked
Start = Callable[[int, str, str], Process]  # party 0 is the server; module; settings
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


def start_here(party: int, module: str, settings: str) -> Process:
    """A process on this machine."""
    return Forked(module, settings)


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
    server = start(0, "host", host.to_json())
    with _ended(server):
        address = next(row["address"] for row in _rows(server) if row["row"] == "listening")
        with reach(address) as called:
            visitor = replace(
                visitor, server=called, inputs=str(folder / "x.npy"), expected=str(folder / "y.npy")
            )
            client = start(1, "visitor", visitor.to_json())
            with _ended(client):
                result = _last(client, "result", tell)
        _pipe(server.stdin).close()
        used = _last(server, "usage", lambda row: None)
    return Run(result, used)


def command(module: str, settings: str) -> list[str]:
    """The command line of a party."""
    return [sys.executable, "-m", f"thinwire_lab.private.{module}", settings]


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

"""Teams of real processes over gloo on loopback: run a function on every rank, collect values and failures.

    with Server() as server, Team(server, 3) as team:
        values = team.run(work, argument)          # work(argument) on every rank; values in rank order

Nothing outlives a team: a rank that does not answer in time is killed, stopped or not.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Listener, wait
from pathlib import Path
from typing import Any

from rank import Leave, Raised

TIMEOUT_S = 600.0  # of a group in which nobody should wait for a timeout: who does has no answer in time
ANSWER_S = 240.0  # far above what a busy machine needs: an answer that takes longer is a hang
LEAVE_S = 120.0
# Some virtual machines name AMX among their CPU's flags and then refuse its instructions: torch's own
# products of bfloat16 end there by SIGILL, with no line of ours in them.
NO_AMX = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


@dataclass(frozen=True)
class Hang:
    """What a rank "answered" that was killed because it gave no answer in time."""

    after_s: float


@dataclass(frozen=True)
class Gone:
    """What a rank "answered" that died."""


class Server:
    """The fork server of a test session (see forkserver.py)."""

    def __enter__(self) -> Server:
        self._cache = tempfile.TemporaryDirectory(prefix="thinwire-cache-")  # calibrations of these teams
        env = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **NO_AMX}
        env["XDG_CACHE_HOME"] = self._cache.name
        self._process = self.popen(
            [sys.executable, str(Path(__file__).with_name("forkserver.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=env,
        )
        return self

    def popen(self, argv: list[str], **options: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(argv, **options)

    def __exit__(self, *_: object) -> None:
        self._process.communicate()
        self._cache.cleanup()

    def fork(self, **spec: Any) -> int:
        pid = self._ask({"fork": spec})
        assert pid is not None
        return pid

    def poll(self, pid: int) -> int | None:
        return self._ask({"poll": pid})

    def _ask(self, request: dict[str, Any]) -> int | None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer: int | None = json.loads(self._process.stdout.readline())
        return answer


class Team:
    """N ranks in one gloo group, alive until the `with` block ends."""

    def __init__(self, server: Server, world: int, timeout_s: float = TIMEOUT_S) -> None:
        self.world, self._server, self._timeout_s = world, server, timeout_s
        self.codes: dict[int, int] = {}
        self.broken = False

    def __enter__(self) -> Team:
        self._folder = tempfile.TemporaryDirectory(prefix="thinwire-team-")
        address = f"{self._folder.name}/team"
        with Listener(address) as listener:
            self.pids = [
                self._server.fork(
                    rank=rank,
                    world=self.world,
                    address=address,
                    stderr=str(self._log(rank)),
                    timeout_s=self._timeout_s,
                )
                for rank in range(self.world)
            ]
            met: dict[int, Connection] = {}
            for _ in self.pids:
                connection = listener.accept()
                met[connection.recv()[0]] = connection
        self._connections = [met[rank] for rank in range(self.world)]
        port = self._connections[0].recv()
        for connection in self._connections[1:]:
            connection.send(port)
        return self

    def __exit__(self, *_: object) -> None:
        self.kill(*set(range(self.world)) - set(self.codes))
        self._wait(range(self.world), time.monotonic() + LEAVE_S)
        for connection in self._connections:
            connection.close()
        self._folder.cleanup()

    def run(self, work: Callable[..., Any], *args: Any) -> list[Any]:
        """`work(*args)` on every rank; fails with every rank's trouble if one does not give a value."""
        answers = self.answers(work, *args)
        bad = [f"rank {rank}: {self._trouble(rank, a)}" for rank, a in enumerate(answers) if _is_bad(a)]
        self.broken = bool(bad)
        assert not bad, "\n".join(bad)
        return answers

    def answers(self, work: Callable[..., Any], *args: Any, timeout_s: float = ANSWER_S) -> list[Any]:
        """A value, Raised, Hang or Gone from every rank."""
        self.start(work, *args)
        return self.collect(timeout_s=timeout_s)

    def start(self, work: Callable[..., Any], *args: Any) -> None:
        """Tells every rank to begin; `collect` gets the answers."""
        for connection in self._connections:
            with contextlib.suppress(OSError):  # a dead rank; its answer is Gone
                connection.send_bytes(pickle.dumps((work, args)))  # `send` would share tensors by file

    def collect(self, ranks: Iterable[int] | None = None, timeout_s: float = ANSWER_S) -> list[Any]:
        """The answers of these ranks (or all), in their order; ranks that are late are killed."""
        asked = [self._connections[rank] for rank in (range(self.world) if ranks is None else ranks)]
        answers: dict[Connection, Any] = {}
        deadline = time.monotonic() + timeout_s
        while pending := [connection for connection in asked if connection not in answers]:
            ready = wait(pending, max(0.0, deadline - time.monotonic()))
            for connection in ready:
                assert isinstance(connection, Connection)
                answers[connection] = _receive(connection)
            if not ready:
                self.kill(*map(self._connections.index, pending))
                answers.update({connection: Hang(timeout_s) for connection in pending})
        return [answers[connection] for connection in asked]

    def signal(self, rank: int, number: int) -> None:
        os.kill(self.pids[rank], number)

    def kill(self, *ranks: int) -> None:
        for rank in ranks:
            self.signal(rank, signal.SIGKILL)

    def dismiss(self, how: Leave = Leave()) -> None:
        """Every rank ends like a program as soon as it has answered; `collect` gets the answers."""
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.send_bytes(pickle.dumps(how))

    def leave(self, how: Leave = Leave(), timeout_s: float = LEAVE_S) -> list[int | None]:
        """Lets all ranks end like programs; their exit codes, None for a rank that hangs."""
        self.dismiss(how)
        self._wait(range(self.world), time.monotonic() + timeout_s)
        return [self.codes.get(rank) for rank in range(self.world)]

    def still_running(self, ranks: Iterable[int], timeout_s: float) -> list[int]:
        """Which of these ranks have not ended within the time."""
        self._wait(list(ranks), time.monotonic() + timeout_s)
        return [rank for rank in ranks if rank not in self.codes]

    def log(self, rank: int) -> str:
        """What a rank wrote to stdout and stderr."""
        return self._log(rank).read_text()

    def _log(self, rank: int) -> Path:
        return Path(self._folder.name, f"rank{rank}.log")

    def _wait(self, ranks: Iterable[int], deadline: float) -> None:
        while (running := set(ranks) - set(self.codes)) and time.monotonic() < deadline:
            for rank in running:
                code = self._server.poll(self.pids[rank])
                if code is not None:
                    self.codes[rank] = code
            time.sleep(0.005)

    def _trouble(self, rank: int, answer: Any) -> str:
        trace = answer.failure.trace if isinstance(answer, Raised) else answer
        return f"{trace}\n{self.log(rank)}"


Teams = Callable[[int], Team]  # the team of a world size, shared by many tests
NewTeam = Callable[..., Team]  # a team of the test's own


def _is_bad(answer: Any) -> bool:
    return isinstance(answer, Raised | Hang | Gone)


def _receive(connection: Connection) -> Any:
    try:
        return pickle.loads(connection.recv_bytes())
    except (EOFError, OSError):
        return Gone()

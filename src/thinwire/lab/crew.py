"""A crew: the worker processes of one run, started together, watched together and ended together."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from thinwire.errors import LabError

TAIL_LINES = 12
GRACE_S = 1.0  # after the first failure, to see which worker failed first and why
POLL_S = 0.2

Row = dict[str, Any]
Start = Callable[[int], "subprocess.Popen[str]"]


@dataclass
class Member:
    """One worker process, the last lines it wrote, and the error it reported."""

    rank: int
    process: subprocess.Popen[str]
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    error: str | None = None
    crash: list[str] = field(default_factory=list)  # the end of its traceback

    def sentence(self) -> str:
        """What happened to a worker that failed."""
        if self.error is not None:
            return self.error
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        said = (
            "\n".join(f"  [worker {self.rank}] {line}" for line in self.crash or self.tail)
            or "  (it wrote nothing)"
        )
        return f"worker {self.rank} {how}; the other workers were stopped. Its last output:\n{said}"


class Crew:
    """Runs workers and yields the rows they print; leaving the `with` block ends every process.

    1. every worker writes rows (JSON objects with a "row" entry) and other lines to a pipe of its own;
    2. when a worker fails, the others are given a second to fail too: a worker that was killed or that
       reported an error is the cause, one that merely lost its peer is not;
    3. all processes are killed with their groups, whatever happens.
    """

    def __init__(self, start: Start, workers: int) -> None:
        self._start, self._workers = start, workers
        self._members: list[Member] = []
        self._lines: queue.Queue[tuple[Member, str | None]] = queue.Queue()

    def __enter__(self) -> Crew:
        try:
            for rank in range(self._workers):
                member = Member(rank, self._start(rank))
                self._members.append(member)
                threading.Thread(target=self._read, args=(member,), daemon=True).start()
        except BaseException:
            self._kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill()

    def rows(self) -> Iterator[Row]:
        """The rows of all workers as they come; raises LabError when a worker fails."""
        running = len(self._members)
        while running:
            member, line = self._next()
            if line is not None:
                yield from self._row(member, line)
            else:
                running -= 1
                if member.process.wait() != 0:
                    self._fail()

    def _next(self) -> tuple[Member, str | None]:
        while True:  # a timeout now and then lets Ctrl-C in on every platform
            with contextlib.suppress(queue.Empty):
                return self._lines.get(timeout=POLL_S)

    def _row(self, member: Member, line: str) -> Iterator[Row]:
        row = parse_row(line)
        if row is None:
            member.tail.append(line)
        elif row["row"] == "error":
            member.error = row["message"]
        elif row["row"] == "crash":
            member.crash = row["lines"][-TAIL_LINES:]
        else:
            yield row

    def _fail(self) -> None:
        deadline = time.monotonic() + GRACE_S
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                member, line = self._lines.get(timeout=POLL_S)
                list(self._row(member, line) if line is not None else ())
        failed = [member for member in self._members if member.process.poll() not in (None, 0)]
        raise LabError(min(failed, key=_suspicion).sentence())

    def _read(self, member: Member) -> None:
        assert member.process.stdout is not None
        for line in member.process.stdout:
            self._lines.put((member, line.rstrip("\n")))
        self._lines.put((member, None))

    def _kill(self) -> None:
        for member in self._members:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(member.process.pid, signal.SIGKILL)
        for member in self._members:
            member.process.wait()
            for pipe in (member.process.stdin, member.process.stdout):
                if pipe is not None:
                    pipe.close()


def _suspicion(member: Member) -> tuple[int, int]:
    """Workers in the order in which they are blamed: killed, reported an error, anything else."""
    if member.process.returncode < 0 and member.process.returncode != -signal.SIGABRT:
        return 0, member.rank
    return (1 if member.error is not None else 2), member.rank


def parse_row(line: str) -> Row | None:
    """The row in a line, or None if the line is something else."""
    if not line.startswith('{"row"'):
        return None
    with contextlib.suppress(json.JSONDecodeError):
        row: Row = json.loads(line)
        return row
    return None

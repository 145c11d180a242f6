"""Processes that are started, watched and stopped together, and how each of them ended."""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import IO, Any

from thinwire.errors import LabError

TAIL_LINES = 20
CHUNK_BYTES = 1 << 16
GRACE_S = 2.0  # between asking a process to stop (SIGTERM) and killing it
REPORTS_ENDS = hasattr(os, "pidfd_open")  # Linux; elsewhere processes are looked at every POLL_S
POLL_S = 0.05
Start = Callable[[int], "subprocess.Popen[bytes]"]
Line = tuple[int, str]  # who wrote it, and what


@dataclass(frozen=True)
class Ending:
    """How one process ended; minus a signal's number if a signal ended it."""

    rank: int
    returncode: int

    @property
    def killed(self) -> bool:
        """Whether somebody else ended it: a process that loses its peer may abort, but is not killed."""
        return self.returncode < 0 and self.returncode != -signal.SIGABRT

    def __str__(self) -> str:
        if self.returncode < 0:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        return f"ended with exit code {self.returncode}"


class ProcessFailed(LabError):
    """One process failed, so the others were stopped."""

    def __init__(self, noun: str, failed: Ending, endings: Sequence[Ending], output: Sequence[str]) -> None:
        self.noun, self.failed, self.endings = noun, failed, tuple(endings)
        others = f"; the other {noun}s were stopped" if len(endings) > 1 else ""
        self.sentence = f"{noun} {failed.rank} {failed}{others}"
        said = "\n".join(f"  [{noun} {failed.rank}] {line}" for line in output) or "  (it wrote nothing)"
        super().__init__(f"{self.sentence}. Its last output:\n{said}")

    def showing(self, output: Sequence[str]) -> ProcessFailed:
        """The same failure, with these lines as the last output."""
        return ProcessFailed(self.noun, self.failed, self.endings, output)


@dataclass
class Watched:
    """One process, a line it has not finished, and the last lines it wrote."""

    rank: int
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    @property
    def pipe(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def read(self) -> tuple[bool, list[str]]:
        """Whether more may come, and the lines that are whole by now."""
        try:
            chunk = os.read(self.pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return True, []
        # Progress bars end their lines by a carriage return.
        text = (self.rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self.rest = text.split(b"\n")
        return bool(chunk), self._kept(lines)

    def read_rest(self) -> list[str]:
        """What is still in the pipe; a process left in the background cannot hold us up."""
        found = []
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            more = True
            while more and selector.select(0):
                more, lines = self.read()
                found += lines
        last, self.rest = [self.rest] if self.rest else [], b""
        return found + self._kept(last)

    def _kept(self, lines: Sequence[bytes]) -> list[str]:
        texts = [line.decode(errors="replace") for line in lines]
        self.tail.extend(texts)
        return texts


class Supervisor:
    """Runs N processes inside its `with` block; leaving the block, however, stops those that still run.

    1. `start(rank)` starts each, in a session of its own, its output in a pipe;
    2. `lines` gives whole lines as they come, until all processes have ended well or one badly;
    3. after a failure the others have `settle_s` to fail too: one that was killed is the cause, one that
       merely lost its peer is not;
    4. then all are stopped: asked first, killed `GRACE_S` later.
    """

    def __init__(self, start: Start, count: int, noun: str = "worker", settle_s: float = 0.0) -> None:
        self.count = count
        self._start, self._noun, self._settle_s = start, noun, settle_s
        self._watched: list[Watched] = []

    def __enter__(self) -> Supervisor:
        try:
            for rank in range(self.count):
                self._watched.append(Watched(rank, self._start(rank)))
                os.set_blocking(self._watched[-1].pipe.fileno(), False)
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    @property
    def endings(self) -> list[Ending]:
        """How processes ended, by rank, without those that still run."""
        ended = [(one.rank, one.process.poll()) for one in self._watched]
        return [Ending(rank, code) for rank, code in ended if code is not None]

    def lines(self, timeout: float | None = None) -> Iterator[Line]:
        """The lines of all processes; raises ProcessFailed, or LabError after `timeout` seconds."""
        with self._selector() as selector:
            late = yield from self._watch(selector, _deadline(timeout))
            yield from self._settle(selector)
        failed = self._cause()
        stop([one.process for one in self._watched])
        for one in self._watched:
            yield from ((one.rank, line) for line in one.read_rest())
        if late:
            running = ", ".join(map(str, late))
            raise LabError(
                f"{self._noun} {running} still running after {timeout:g} s, so all {self._noun}s were "
                "stopped: allow more time"
            )
        if failed is not None:
            raise ProcessFailed(self._noun, failed, self.endings, self._watched[failed.rank].tail)

    def _watch(self, selector: selectors.BaseSelector, deadline: float) -> Generator[Line, None, list[int]]:
        """Until all have ended, one has failed or time is up; gives the ranks that were too slow."""
        while self._running() and self._cause() is None:
            if time.monotonic() >= deadline:
                return self._running()
            yield from self._ready(selector, deadline)
        return []

    def _settle(self, selector: selectors.BaseSelector) -> Iterator[Line]:
        """After a failure: see who else fails."""
        deadline = _deadline(self._settle_s)
        while self._cause() is not None and self._running() and time.monotonic() < deadline:
            yield from self._ready(selector, deadline)

    def _ready(self, selector: selectors.BaseSelector, deadline: float) -> Iterator[Line]:
        """Wait for output or for the end of a process, and read what is there."""
        longest = math.inf if REPORTS_ENDS else POLL_S
        left = min(longest, max(0.0, deadline - time.monotonic()))
        for key, _ in selector.select(None if left == math.inf else left):
            one: Watched = key.data
            more, lines = one.read() if key.fileobj is one.pipe else (False, [])
            if not more:
                selector.unregister(key.fileobj)
            yield from ((one.rank, line) for line in lines)

    @contextlib.contextmanager
    def _selector(self) -> Iterator[selectors.BaseSelector]:
        """Tells of output and, where the system can, of the end of a process."""
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as ends:
            for one in self._watched:
                selector.register(one.pipe, selectors.EVENT_READ, one)
                if REPORTS_ENDS and one.process.returncode is None:  # else its number is free
                    end = os.pidfd_open(one.process.pid)
                    ends.callback(os.close, end)
                    selector.register(end, selectors.EVENT_READ, one)
            yield selector

    def _running(self) -> list[int]:
        return [one.rank for one in self._watched if one.process.poll() is None]

    def _cause(self) -> Ending | None:
        """The failure to blame so far: a killed process made the others fail."""
        failures = [ending for ending in self.endings if ending.returncode]
        return min(failures, key=lambda ending: (not ending.killed, ending.rank), default=None)

    def _close(self) -> None:
        stop([one.process for one in self._watched])
        for one in self._watched:
            for pipe in (one.process.stdin, one.process.stdout):
                if pipe is not None:
                    pipe.close()


def stop(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """End these processes and their groups: ask, wait a little, then kill."""
    _signal_groups(processes, signal.SIGTERM)
    deadline = _deadline(GRACE_S)
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    _signal_groups(processes, signal.SIGKILL)
    for process in processes:
        process.wait()


def _signal_groups(processes: Sequence[subprocess.Popen[Any]], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:  # not waited for yet, so the number is still its own
            with contextlib.suppress(PermissionError):  # macOS, if all of the group have just ended
                os.killpg(process.pid, number)


def _deadline(seconds: float | None) -> float:
    return math.inf if seconds is None else time.monotonic() + seconds

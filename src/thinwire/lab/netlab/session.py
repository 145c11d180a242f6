"""A session: one command running on every host, watched together and stopped together."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any

from thinwire.errors import LabError

TAIL_LINES = 20
GRACE_S = 2.0  # between asking a host to stop (SIGTERM) and killing it
CHUNK_BYTES = 1 << 16

Stream = Callable[[int, str], None]


@dataclass(frozen=True)
class Completed:
    """How the command ended on one host; minus a signal's number if a signal ended it."""

    rank: int
    returncode: int


class HostFailed(LabError):
    """The command failed on one host, so the others were stopped."""

    def __init__(self, failed: Completed, hosts: list[Completed], tail: Sequence[str]) -> None:
        self.failed, self.hosts = failed, hosts
        others = "; the other hosts were stopped" if len(hosts) > 1 else ""
        self.sentence = f"host {failed.rank} {_ending(failed.returncode)}{others}"
        said = "\n".join(f"  [host {failed.rank}] {line}" for line in tail) or "  (it wrote nothing)"
        super().__init__(f"{self.sentence}. Its last output:\n{said}")


@dataclass
class Member:
    """The command on one host: its process, a line it has not finished, and the last lines it wrote."""

    rank: int
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))


class Session:
    """Runs until the command has ended well on every host, or badly on one.

    1. wait for output or for the end of a process, whichever comes first;
    2. pass on whole lines; 3. at the first failure stop the others; 4. leave no process of ours running.
    """

    def __init__(self, processes: Sequence[subprocess.Popen[bytes]], stream: Stream | None) -> None:
        self._members = [Member(rank, process) for rank, process in enumerate(processes)]
        self._stream = stream
        for member in self._members:
            os.set_blocking(_pipe(member).fileno(), False)

    def wait(self, timeout: float | None = None) -> list[Completed]:
        """Watch the hosts until all have ended; raises HostFailed, or LabError after `timeout` seconds."""
        try:
            failed = self._watch(None if timeout is None else time.monotonic() + timeout)
        except TimeoutError:
            running = [str(member.rank) for member in self._members if member.process.poll() is None]
            raise LabError(
                f"host {', '.join(running)} still running after {timeout:g} s, so all hosts were stopped: "
                "allow more time"
            ) from None
        finally:
            stop([member.process for member in self._members])
            self._finish_output()
        completed = [Completed(member.rank, member.process.returncode) for member in self._members]
        if failed is not None:
            raise HostFailed(completed[failed.rank], completed, failed.tail)
        return completed

    def _watch(self, deadline: float | None) -> Member | None:
        """The member that failed first, or None when all have ended well."""
        with selectors.DefaultSelector() as selector, contextlib.ExitStack() as ends:
            for member in self._members:
                selector.register(_pipe(member), selectors.EVENT_READ, member)
                if member.process.returncode is None:  # else it was waited for, and its number is free
                    end = os.pidfd_open(member.process.pid)
                    ends.callback(os.close, end)
                    selector.register(end, selectors.EVENT_READ, member)
            while True:
                codes = [member.process.poll() for member in self._members]
                if any(codes):
                    return min(
                        (member for member in self._members if member.process.returncode), key=_suspicion
                    )
                if None not in codes:
                    return None
                self._pass_on(selector, deadline)

    def _pass_on(self, selector: selectors.BaseSelector, deadline: float | None) -> None:
        """Wait for something to happen and read all output that is there."""
        left = None if deadline is None else deadline - time.monotonic()
        if left is not None and left <= 0:
            raise TimeoutError
        for key, _ in selector.select(left):
            member: Member = key.data
            if key.fileobj is not member.process.stdout or not self._read(member):
                selector.unregister(key.fileobj)  # the process has ended, or closed its output

    def _read(self, member: Member) -> bool:
        """Read what a host has written so far; False at the end of its output."""
        try:
            chunk = os.read(_pipe(member).fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return True
        # Progress bars end their lines by a carriage return.
        *lines, member.rest = (member.rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        for line in lines:
            self._tell(member, line)
        return bool(chunk)

    def _finish_output(self) -> None:
        """Pass on what was still in the pipes; a process left in the background cannot hold us up."""
        for member in self._members:
            with contextlib.closing(_pipe(member)) as pipe, selectors.DefaultSelector() as selector:
                selector.register(pipe, selectors.EVENT_READ)
                while selector.select(0) and self._read(member):
                    pass
            if member.rest:
                self._tell(member, member.rest)

    def _tell(self, member: Member, line: bytes) -> None:
        text = line.decode(errors="replace")
        member.tail.append(text)
        if self._stream is not None:
            self._stream(member.rank, text)


def stop(processes: Sequence[subprocess.Popen[Any]]) -> None:
    """End these processes and their groups: ask, wait a little, then kill."""
    _signal_groups(processes, signal.SIGTERM)
    deadline = time.monotonic() + GRACE_S
    for process in processes:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(max(0.0, deadline - time.monotonic()))
    _signal_groups(processes, signal.SIGKILL)
    for process in processes:
        process.wait()


def _signal_groups(processes: Sequence[subprocess.Popen[Any]], number: signal.Signals) -> None:
    for process in processes:
        if process.poll() is None:  # not waited for yet, so the number is still its own
            os.killpg(process.pid, number)


def _pipe(member: Member) -> IO[bytes]:
    assert member.process.stdout is not None
    return member.process.stdout


def _suspicion(member: Member) -> tuple[bool, int]:
    """The order of blame if several failed at once: a killed host made the others fail."""
    return member.process.returncode != -signal.SIGKILL, member.rank


def _ending(returncode: int) -> str:
    if returncode < 0:
        return f"was killed by {signal.Signals(-returncode).name}"
    return f"ended with exit code {returncode}"

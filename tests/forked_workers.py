"""Workers of the lab that start in milliseconds: forked from a process that has imported torch once.

    with WorkerServer() as server:
        process = server.start(["python", "-m", "thinwire_lab.run.worker", "job.json"], env)

A started worker has what the supervisor needs of a `subprocess.Popen`. The server (this file as a program)
reads JSON messages from a socket, those that start a worker with its two pipes, and answers each:

    {"argv": [...], "env": {...}} -> process id
    {"poll": process id} -> exit code (negative: a signal), or null while it runs
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

MESSAGE_BYTES = 1 << 20
POLL_S = 0.005


class WorkerServer:
    """The server's process and the socket to it; it ends with the `with` block or with this process."""

    def __enter__(self) -> WorkerServer:
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            argv = [sys.executable, __file__, str(theirs.fileno())]
            env = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(argv, pass_fds=[theirs.fileno()], env=env)
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()
        self._process.wait()

    def start(self, argv: Sequence[str], env: Mapping[str, str]) -> ForkedWorker:
        """What `subprocess.Popen(argv, env=env, start_new_session=True)` with pipes would start."""
        for_reading, stdin = os.pipe()
        stdout, for_writing = os.pipe()
        pid = self._ask({"argv": list(argv), "env": dict(env)}, for_reading, for_writing)
        os.close(for_reading)
        os.close(for_writing)
        assert pid is not None
        return ForkedWorker(self, pid, stdin, stdout)

    def poll(self, pid: int) -> int | None:
        return self._ask({"poll": pid})

    def _ask(self, request: dict[str, Any], *descriptors: int) -> int | None:
        socket.send_fds(self._channel, [json.dumps(request).encode()], descriptors)
        answer: int | None = json.loads(self._channel.recv(MESSAGE_BYTES))
        return answer


class ForkedWorker:
    """One worker, in the words of `subprocess.Popen`."""

    def __init__(self, server: WorkerServer, pid: int, stdin: int, stdout: int) -> None:
        self.pid, self.returncode = pid, server.poll(pid)
        self.stdin, self.stdout = os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb")
        self._server = server

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._server.poll(self.pid)
        return self.returncode

    def wait(self, timeout: float = float("inf")) -> int:
        deadline = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() >= deadline:
                raise subprocess.TimeoutExpired("worker", timeout)
            time.sleep(POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


@cache
def worker_server() -> WorkerServer:
    """One for all tests of a session."""
    return WorkerServer().__enter__()


@contextmanager
def forked_loopback() -> Iterator[None]:
    """Workers on loopback are forked; what they run is the same."""
    from unittest.mock import patch

    from thinwire_lab.net.network import Loopback

    def popen(network: Loopback, rank: int, argv: Sequence[str], workers: int) -> ForkedWorker:
        return worker_server().start(argv, network.environment(rank, workers))

    with patch.object(Loopback, "popen", popen):
        yield


# The other end.


def serve(channel: socket.socket) -> None:
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES, 2)
        if not message:
            return
        request = json.loads(message)
        if "argv" in request:
            answer: int | None = os.fork()
            if answer == 0:
                channel.close()
                become_worker(request["argv"], request["env"], *descriptors)
            for descriptor in descriptors:
                os.close(descriptor)
        else:
            done, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if done else None
        channel.send(json.dumps(answer).encode())


def become_worker(argv: Sequence[str], env: Mapping[str, str], stdin: int, stdout: int) -> None:
    """`python -m MODULE ...` in this process."""
    os.setsid()
    for source, target in ((stdin, 0), (stdout, 1), (stdout, 2)):
        os.dup2(source, target)
    os.environ.clear()
    os.environ.update(env)
    _, flag, module, *sys.argv[1:] = argv
    assert flag == "-m", argv
    warnings.simplefilter("ignore", RuntimeWarning)  # the module was imported before, to save time
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    sys.stdout.flush()
    os._exit(0)


def main() -> None:
    """Import what takes time, then wait for orders."""
    import torch

    import thinwire_lab.bench.exchange
    import thinwire_lab.bench.step
    import thinwire_lab.run.worker  # noqa: F401

    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # its first call imports for seconds
    gc.freeze()  # else every worker's collector copies all pages that were imported here
    serve(socket.socket(fileno=int(sys.argv[1])))


if __name__ == "__main__":
    main()

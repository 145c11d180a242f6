"""The processes of one example with the environment that torchrun gives them: gloo on loopback, two ranks."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
END_S = 600.0  # far above what a busy machine needs


class Server:
    """See script_server.py."""

    def __enter__(self) -> Server:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("script_server.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, **request: Any) -> Any:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())


class Job:
    """Both ranks of an example, in a folder; leaves no process behind."""

    def __init__(self, server: Server, folder: Path, name: str, *arguments: str, world: int = 2) -> None:
        self._server, self._codes = server, dict[int, int]()
        # The starter keeps the store, as torchrun's agent does: nobody else can take its port.
        self._store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(self._store.port), "WORLD_SIZE": str(world)}
        shared["TORCHELASTIC_USE_AGENT_STORE"] = "True"
        self.outputs = [folder / f"{name}-{time.monotonic_ns()}-{rank}.txt" for rank in range(world)]
        self._pids = [
            server.ask(
                run={
                    "script": str(EXAMPLES / name),
                    "arguments": arguments,
                    "environment": {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                    "folder": str(folder),
                    "output": str(output),
                }
            )
            for rank, output in enumerate(self.outputs)
        ]

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def kill(self) -> None:
        """SIGKILL to all that still run: nobody can clean up."""
        for rank in range(len(self._pids)):
            self.hit(rank)
        self.codes()

    def hit(self, rank: int) -> None:
        """SIGKILL to one."""
        if self._code(rank) is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._pids[rank], signal.SIGKILL)

    def text(self, rank: int = 0) -> str:
        """What a rank wrote so far."""
        return self.outputs[rank].read_text() if self.outputs[rank].exists() else ""

    def wait_for(self, words: str, rank: int = 0) -> None:
        """Until a rank has printed these words."""
        end = time.monotonic() + END_S
        while words not in self.text(rank):
            assert time.monotonic() < end, f"never printed {words!r}: {self.text(rank)}"
            assert self._code(rank) is None, f"ended before it printed {words!r}: {self.text(rank)}"
            time.sleep(0.01)

    def codes(self) -> list[int]:
        """The exit codes, when all have ended."""
        end = time.monotonic() + END_S
        while any(self._code(rank) is None for rank in range(len(self._pids))):
            assert time.monotonic() < end, f"still running: {[self.text(r) for r in range(len(self._pids))]}"
            time.sleep(0.01)
        return [self._codes[rank] for rank in range(len(self._pids))]

    def _code(self, rank: int) -> int | None:
        if rank not in self._codes:
            code: int | None = self._server.ask(poll=self._pids[rank])
            if code is None:
                return None
            self._codes[rank] = code
        return self._codes[rank]


def run(server: Server, folder: Path, name: str, *arguments: str) -> list[str]:
    """What each rank of an example printed; it must end well."""
    with Job(server, folder, name, *arguments) as job:
        codes = job.codes()
        assert codes == [0, 0], (codes, job.text(0), job.text(1))
        return [job.text(0), job.text(1)]

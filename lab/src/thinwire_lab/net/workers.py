"""Workers: the processes of one run on a network, how they meet, and the rows that they print."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, NoReturn

import torch
import torch.distributed as dist

from thinwire.errors import LabError
from thinwire_lab.net.network import LabNetwork
from thinwire_lab.process import TAIL_LINES, ProcessFailed, Supervisor

STORE_FILE = "rendezvous"
PEER_TIMEOUT = timedelta(minutes=10)  # a step over a slow link is long; a dead peer is noticed at once anyway
JOB_FILE = "job.json"
SETTLE_S = 1.0  # after the first failure, to see which worker failed first and why
Row = dict[str, Any]


def join(job_file: Path) -> None:
    """Rendezvous over a file beside the job, one thread a worker: four workers may share two cores."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job_file.resolve().parent / STORE_FILE}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=PEER_TIMEOUT,
    )


def leave() -> NoReturn:
    """Waits for all workers, leaves the group and ends this process."""
    dist.barrier()
    dist.destroy_process_group()
    end_process(0)


def end_process(code: int) -> NoReturn:
    """End at once, without taking down the interpreter or the objects that callers still hold.

    Freeing a DDP model after its group was destroyed never returned in 4 of 12 runs on a busy machine, when
    all work was done. Once the interpreter's shut-down met a thread of torch or gloo, and aborted.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_workers(
    module: str, job: Mapping[str, Any], network: LabNetwork, count: int
) -> Generator[Row, None, None]:
    """The rows of `python -m MODULE JOB_FILE` on `count` workers; the job is plain JSON."""
    with tempfile.TemporaryDirectory(prefix="thinwire-run-") as folder:
        path = Path(folder) / JOB_FILE
        path.write_text(json.dumps(job))
        argv = [sys.executable, "-m", module, str(path)]
        with Supervisor(lambda rank: network.popen(rank, argv, count), count, "worker", SETTLE_S) as workers:
            yield from worker_rows(workers)


def worker_rows(workers: Supervisor) -> Generator[Row, None, None]:
    """The rows of all workers as they come; raises LabError when a worker fails."""
    said = [Remarks() for _ in range(workers.count)]
    try:
        for rank, line in workers.lines():
            row = parse_row(line)
            if row is None or row["row"] in ("error", "crash"):
                said[rank].take(line, row)
            else:
                yield row
    except ProcessFailed as failure:
        raise _explained(failure, said) from None


@dataclass
class Remarks:
    """What a worker said besides its rows: the user's mistake, the end of a traceback, other lines."""

    mistake: str | None = None
    crash: list[str] = field(default_factory=list)
    others: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    def take(self, line: str, row: Row | None) -> None:
        if row is None:
            self.others.append(line)
        elif row["row"] == "error":
            self.mistake = row["message"]
        else:
            self.crash = row["lines"][-TAIL_LINES:]


def _explained(failure: ProcessFailed, said: list[Remarks]) -> LabError:
    """A killed worker is blamed first, then one that reported a mistake, then the one that failed."""
    mistakes = [one.mistake for one in said if one.mistake is not None]
    if mistakes and not failure.failed.killed:
        return LabError(mistakes[0])
    blamed = said[failure.failed.rank]
    return failure.showing(blamed.crash or list(blamed.others))


def parse_row(line: str) -> Row | None:
    """The row in a line (a JSON object that begins with "row"), or None if the line is something else."""
    if not line.startswith('{"row"'):
        return None
    with contextlib.suppress(json.JSONDecodeError):
        row: Row = json.loads(line)
        return row
    return None

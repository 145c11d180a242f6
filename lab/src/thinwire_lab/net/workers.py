"""Workers: the processes of one run on a network, and the rows that they print."""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
from collections import deque
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire_lab.net.network import Network
from thinwire_lab.process.ending import ProcessFailed
from thinwire_lab.process.supervisor import Supervisor
from thinwire_lab.process.watched import TAIL_LINES

JOB_FILE = "job.json"
SETTLE_S = 1.0  # after the first failure, to see which worker failed first and why

Row = dict[str, Any]


def run_workers(
    module: str, job: Mapping[str, Any], network: Network, count: int
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

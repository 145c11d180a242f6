"""A process that imports torch once and forks ranks on demand; a rank ends like any Python program.

Read from stdin, one JSON object a line, each answered by a line on stdout:

    {"fork": {"rank", "world", "address", "stderr", "timeout_s"}} -> process id
    {"poll": process id} -> exit code (negative: a signal), or null while it runs

At the end of stdin all ranks that still run are killed.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from typing import Any

# Imported here, before any fork, so that ranks start in milliseconds.
import damaged  # noqa: F401
import failing  # noqa: F401
import faulty  # noqa: F401
import features  # noqa: F401
import launch  # noqa: F401
import pytest  # noqa: F401
import torch
from rank import serve

import thinwire
from thinwire.perf import link_probe

# Links between ranks of one machine have no token buckets to be emptied: a short flood says as much.
link_probe.FLOOD_S, link_probe.LONG_S = 0.02, 0.005
link_probe.SENT_BYTES = (2 << 10, 32 << 10, 512 << 10)


def main() -> None:
    torch.set_num_threads(1)
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # its first call imports for seconds
    _ = thinwire.compress  # imported when it is first asked for
    if "triton" not in sys.modules:  # frozen, its types are reported as leaks when a rank ends
        gc.freeze()  # else every rank's collector, and its end, copies all pages that were imported here
    pids: set[int] = set()
    for line in sys.stdin:
        request = json.loads(line)
        if "fork" in request:
            pid = os.fork()
            if pid == 0:
                become_rank(request["fork"])
                return
            pids.add(pid)
            answer: int | None = pid
        else:
            answer = poll(request["poll"], pids)
        print(json.dumps(answer), flush=True)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def poll(pid: int, pids: set[int]) -> int | None:
    done, status = os.waitpid(pid, os.WNOHANG)
    if not done:
        return None
    pids.discard(pid)
    return os.waitstatus_to_exitcode(status)


def become_rank(spec: dict[str, Any]) -> None:
    """The pipes belong to the server; what a rank writes goes to its own file."""
    log = os.open(spec.pop("stderr"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    serve(**spec)


if __name__ == "__main__":
    main()

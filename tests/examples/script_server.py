"""A process that imports torch once and forks itself into scripts, which then end like any Python program.

Read from stdin, one JSON object a line, each answered by a line on stdout:

    {"run": {"script", "arguments", "environment", "folder", "output"}} -> process id
    {"poll": process id} -> exit code (negative: a signal), or null while it runs
"""

from __future__ import annotations

import gc
import json
import os
import runpy
import sys
from typing import Any

# Imported here, before any fork, so that scripts start in milliseconds.
import torch

import thinwire


def main() -> None:
    torch.optim.SGD([torch.zeros(1)], lr=0.1)  # its first call imports for seconds
    _ = thinwire.compress  # imported when it is first asked for
    gc.freeze()  # else every script's collector, and its end, copies all pages that were imported here
    for line in sys.stdin:
        request = json.loads(line)
        if "run" in request:
            answer: int | None = os.fork()
            if answer == 0:
                become(**request["run"])
                return
        else:
            done, status = os.waitpid(request["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if done else None
        print(json.dumps(answer), flush=True)


def become(script: str, arguments: list[str], environment: dict[str, str], folder: str, output: str) -> None:
    """The pipes belong to the server; what a script writes goes to its own file."""
    log = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.chdir(folder)
    os.environ.update(environment)
    sys.argv, rest = [script, *arguments], dict[str, Any]()
    sys.path[0] = os.path.dirname(script)
    runpy.run_path(script, rest, run_name="__main__")


if __name__ == "__main__":
    main()

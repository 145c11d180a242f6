"""Forked: a party as a process forked off a server that has imported everything and computed nothing.

Importing torch takes seconds; a ladder starts dozens of parties. The two parties share no memory.
"""

from __future__ import annotations

import importlib
import json
import multiprocessing
import os
import sys
import traceback
from multiprocessing.connection import Connection

PRELOADED = ("thinwire_lab.private.host", "thinwire_lab.private.visitor")


class Forked:
    """Like subprocess.Popen of `python -m thinwire_lab.private.MODULE SETTINGS`, as far as runs need it."""

    def __init__(self, module: str, settings: str) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(list(PRELOADED))
        theirs_in, ours_in = context.Pipe(duplex=False)
        ours_out, theirs_out = context.Pipe(duplex=False)
        self._process = context.Process(
            target=_run, args=(module, settings, theirs_in, theirs_out), daemon=True
        )
        self._process.start()
        theirs_in.close()
        theirs_out.close()
        self.stdin = os.fdopen(os.dup(ours_in.fileno()), "w")
        self.stdout = os.fdopen(os.dup(ours_out.fileno()))
        ours_in.close()
        ours_out.close()
        self.stderr = None

    def poll(self) -> int | None:
        """The exit code, None while it runs."""
        return self._process.exitcode

    def wait(self) -> int:
        """The exit code, waited for."""
        self._process.join()
        return self._process.exitcode or 0

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()


def _run(module: str, settings: str, stdin: Connection, stdout: Connection) -> None:
    sys.stdin = os.fdopen(os.dup(stdin.fileno()))
    sys.stdout = os.fdopen(os.dup(stdout.fileno()), "w")
    stdin.close()
    stdout.close()
    try:
        importlib.import_module(f"thinwire_lab.private.{module}").main(settings)
    except BaseException:
        print(json.dumps({"row": "failed", "text": traceback.format_exc().strip().splitlines()[-1]}))
        sys.stdout.flush()
        sys.exit(1)
    sys.stdout.flush()

"""Rows of workers: they come through, other lines do not, and the cause of a failure is told."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from thinwire.errors import LabError
from thinwire_lab.net.network import PIPES
from thinwire_lab.net.workers import parse_row, worker_rows
from thinwire_lab.process import Supervisor


def say(**row: Any) -> str:
    return f"echo '{json.dumps(row)}'"


def run(*scripts: str, settle_s: float = 300.0) -> list[dict[str, Any]]:
    """The rows of these shell scripts; once one has failed, the others have `settle_s` to end."""

    def start(rank: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(["sh", "-c", scripts[rank]], start_new_session=True, **PIPES)

    with Supervisor(start, len(scripts), settle_s=settle_s) as workers:
        return list(worker_rows(workers))


def test_rows_come_through_and_other_lines_do_not() -> None:
    assert run(f"echo hello; {say(row='step', step=1)}", "true") == [{"row": "step", "step": 1}]


def test_a_failing_worker_is_named_with_its_last_lines_but_not_its_rows() -> None:
    script = f"{say(row='step', step=1)}; echo out of luck; exit 3"
    with pytest.raises(LabError) as caught:
        run("exec sleep 600", script, settle_s=0.3)
    sentence, *tail = str(caught.value).splitlines()
    assert sentence.startswith("worker 1 ended with exit code 3; the other workers were stopped")
    assert tail == ["  [worker 1] out of luck"]


def test_a_reported_mistake_is_the_message() -> None:
    with pytest.raises(LabError, match=r"^use another codec$"):
        run("exit 1", f"{say(row='error', message='use another codec')}; exit 2")


def test_a_killed_worker_is_blamed_before_a_reported_mistake(tmp_path: Path) -> None:
    """Even if it is killed later: worker 0 reads until worker 1, which holds the pipe open, has ended."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    report = say(row="error", message="peer is gone")
    with pytest.raises(LabError, match="worker 0 was killed by SIGKILL"):
        run(f"read nothing < {pipe}; kill -9 $$", f"exec 3> {pipe}; {report}; exit 2")


def test_a_traceback_is_shown_and_not_what_follows_it() -> None:
    with pytest.raises(LabError, match=r"exit code 1(?s:.*)\[worker 0\] KeyError: 7$"):
        run(f"{say(row='crash', lines=['KeyError: 7'])}; echo leaked; exit 1")


def test_only_rows_are_rows() -> None:
    assert parse_row('{"row": "step"}') == {"row": "step"}
    assert parse_row('{"row": ') is None
    assert parse_row("[1]") is None

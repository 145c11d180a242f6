"""Crews of small real processes: rows come through, failures are named, nothing is left running."""

import os
import subprocess
import sys
import time

import pytest

from thinwire.errors import LabError
from thinwire.lab.crew import Crew, parse_row
from thinwire.lab.network import PIPES


def start_scripts(*scripts: str):
    """A starter that gives each rank its script."""
    processes: list[subprocess.Popen[str]] = []

    def start(rank: int) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", scripts[rank]]
        processes.append(subprocess.Popen(argv, start_new_session=True, **PIPES))
        return processes[-1]

    return start, processes


def run(*scripts: str) -> list[dict]:
    start, _ = start_scripts(*scripts)
    with Crew(start, len(scripts)) as crew:
        return list(crew.rows())


SLEEP = "import time; time.sleep(60)"


def test_rows_come_through_and_other_lines_do_not() -> None:
    rows = run('print(\'hello\'); print(\'{"row": "step", "step": 1}\')', "pass")
    assert rows == [{"row": "step", "step": 1}]


def test_failing_worker_is_named_with_its_last_lines() -> None:
    began = time.monotonic()
    with pytest.raises(LabError, match=r"worker 1 ended with exit code 3(?s:.*)\[worker 1\] out of luck"):
        run(SLEEP, "import sys; print('out of luck'); sys.exit(3)")
    assert time.monotonic() - began < 20


def test_killed_worker_is_blamed_before_those_that_lost_it() -> None:
    lost = "import sys, time; time.sleep(0.1); print('connection closed by peer'); sys.exit(1)"
    with pytest.raises(LabError, match="worker 1 was killed by SIGKILL"):
        run(lost, "import os, signal, time; time.sleep(0.3); os.kill(os.getpid(), signal.SIGKILL)", lost)


def test_reported_error_is_the_message() -> None:
    script = 'import sys; print(\'{"row": "error", "message": "use another codec"}\'); sys.exit(2)'
    with pytest.raises(LabError, match=r"^use another codec$"):
        run("import sys; sys.exit(1)", script)


def test_traceback_is_shown_and_not_what_follows_it() -> None:
    crash = 'print(\'{"row": "crash", "lines": ["KeyError: 7"]}\'); print(\'leaked\'); raise SystemExit(1)'
    with pytest.raises(LabError, match=r"exit code 1(?s:.*)\[worker 0\] KeyError: 7$"):
        run(crash)


def test_nothing_is_left_running() -> None:
    """Leaving the block early, as Ctrl-C does, ends the workers and what they started."""
    start, processes = start_scripts(
        SLEEP, f"import subprocess, sys; subprocess.run([sys.executable, '-c', '{SLEEP}'])"
    )
    with pytest.raises(KeyboardInterrupt), Crew(start, 2):
        _interrupted()
    for process in processes:
        assert process.returncode is not None
        with pytest.raises(ProcessLookupError):
            _wait_for_group_to_go(process.pid)


def _interrupted() -> None:
    time.sleep(0.5)
    raise KeyboardInterrupt


def _wait_for_group_to_go(group: int) -> None:
    for _ in range(50):  # a grandchild is reaped by init, a moment later
        os.killpg(group, 0)
        time.sleep(0.1)


def test_failure_to_start_ends_those_already_started() -> None:
    start, processes = start_scripts(SLEEP)

    def start_one(rank: int) -> subprocess.Popen[str]:
        if rank == 1:
            raise OSError("no more processes")
        return start(rank)

    with pytest.raises(OSError, match="no more processes"), Crew(start_one, 2):
        pass
    assert processes[0].returncode is not None


def test_only_rows_are_rows() -> None:
    assert parse_row('{"row": "step"}') == {"row": "step"}
    assert parse_row('{"row": ') is None
    assert parse_row("[1]") is None

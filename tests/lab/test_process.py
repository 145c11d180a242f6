"""Supervised shells: lines come through, failures are named, nothing is left running."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from thinwire.errors import LabError
from thinwire_lab import process as supervisor
from thinwire_lab.process import ProcessFailed, Start, Supervisor

SLEEP = "exec sleep 3600"
SOON_S = 600.0  # far from the hour of SLEEP, and far above what a busy machine needs


def starter(*scripts: str) -> tuple[Start, list[subprocess.Popen[bytes]]]:
    """Gives each rank its script, and keeps the processes for a look at them."""
    processes: list[subprocess.Popen[bytes]] = []

    def start(rank: int) -> subprocess.Popen[bytes]:
        argv = ["sh", "-c", scripts[rank]]
        made = subprocess.Popen(
            argv,
            start_new_session=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        processes.append(made)
        return made

    return start, processes


def run(*scripts: str, timeout: float | None = None, settle_s: float = 0.0) -> list[tuple[int, str]]:
    start, _ = starter(*scripts)
    with Supervisor(start, len(scripts), "worker", settle_s) as processes:
        lines = list(processes.lines(timeout))
        assert [ending.returncode for ending in processes.endings] == [0] * len(scripts)
        return lines


def until(path: Path) -> str:
    """For a shell: waits for a file."""
    return f"while [ ! -e {path} ]; do sleep 0.02; done"


def test_lines_come_whole_and_the_last_needs_no_newline() -> None:
    lines = run("printf 'one\\ntwo\\rthr'; sleep 0.1; printf ee", "echo more >&2")
    assert [line for rank, line in lines if rank == 0] == ["one", "two", "three"]
    assert [line for rank, line in lines if rank == 1] == ["more"]


def test_much_output_is_read_to_its_end() -> None:
    lines = run("seq 100000", "seq 50000")
    assert len(lines) == 150_000
    assert lines[-1][1] in ("100000", "50000")


def test_a_failure_is_named_with_its_last_lines_and_stops_the_others() -> None:
    began = time.monotonic()
    with pytest.raises(ProcessFailed) as caught:
        run(SLEEP, "seq 30; echo out of luck; exit 3")
    sentence, *tail = str(caught.value).splitlines()
    assert sentence == ("worker 1 ended with exit code 3; the other workers were stopped. Its last output:")
    assert tail == [*(f"  [worker 1] {n}" for n in range(12, 31)), "  [worker 1] out of luck"]
    assert [ending.returncode for ending in caught.value.endings] == [-signal.SIGTERM, 3]
    assert time.monotonic() - began < SOON_S


def test_a_single_process_stops_no_others() -> None:
    with pytest.raises(ProcessFailed, match=r"^worker 0 ended with exit code 4\. (?s:.*)it wrote nothing"):
        run("exit 4")


def test_a_killed_process_is_blamed_before_those_that_lost_it() -> None:
    lost = "sleep 0.1; exit 1"
    with pytest.raises(ProcessFailed, match="worker 1 was killed by SIGKILL"):
        run(lost, "sleep 0.3; kill -9 $$", lost, settle_s=SOON_S)


def test_who_aborts_was_not_killed() -> None:
    with pytest.raises(ProcessFailed, match="worker 0 ended with exit code 1"):
        run("sleep 0.1; exit 1", "kill -ABRT $$", settle_s=SOON_S)


def test_settling_ends_when_all_have_ended() -> None:
    began = time.monotonic()
    with pytest.raises(ProcessFailed):
        run("exit 1", "exit 1", settle_s=3600)
    assert time.monotonic() - began < SOON_S


def test_what_ended_before_it_was_watched_is_seen() -> None:
    start, processes = starter("exit 1", SLEEP)
    with Supervisor(start, 2) as both:
        processes[0].wait()
        with pytest.raises(ProcessFailed, match="worker 0 ended with exit code 1"):
            list(both.lines())


def test_a_process_left_in_the_background_does_not_hold_up_the_run() -> None:
    began = time.monotonic()
    [(_, pid)] = run("sleep 3600 & echo $!")
    assert time.monotonic() - began < SOON_S
    os.kill(int(pid), signal.SIGKILL)


def test_who_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(supervisor, "GRACE_S", 0.2)
    deaf = tmp_path / "deaf"
    with pytest.raises(ProcessFailed) as caught:
        run(f"trap '' TERM; touch {deaf}; while :; do sleep 0.05; done", f"{until(deaf)}; exit 1")
    assert [ending.returncode for ending in caught.value.endings] == [-signal.SIGKILL, 1]


def test_a_timeout_stops_all_and_keeps_what_was_said(tmp_path: Path) -> None:
    start, processes = starter(f"echo here; touch {tmp_path / 'said'}; " + SLEEP, "exit 0")
    lines: list[tuple[int, str]] = []
    with Supervisor(start, 2) as both:
        subprocess.run(["sh", "-c", until(tmp_path / "said")], check=True)
        processes[1].wait()
        with pytest.raises(LabError, match=r"worker 0 still running after 0\.3 s, so all workers were stop"):
            lines.extend(both.lines(timeout=0.3))
    assert lines == [(0, "here")]
    assert [ending.returncode for ending in both.endings] == [-signal.SIGTERM, 0]


@pytest.mark.parametrize("reported", [True, False])
def test_it_does_without_reports_of_the_system(reported: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on macOS, where the end of a process is not an event: output closed early, the process goes on."""
    if reported and not supervisor.REPORTS_ENDS:
        pytest.skip("this system does not report the ends of processes")
    monkeypatch.setattr(supervisor, "REPORTS_ENDS", reported)
    assert sorted(run("echo one; exec >&- 2>&-; sleep 0.2", "echo two")) == [(0, "one"), (1, "two")]
    with pytest.raises(ProcessFailed, match="worker 1"):
        run(SLEEP, "exec >&- 2>&-; sleep 0.1; exit 2")


def test_nothing_is_left_running() -> None:
    """Leaving the block early, as Ctrl-C does, ends the processes and what they started."""
    start, processes = starter(SLEEP, f"sh -c '{SLEEP}' & sh -c '{SLEEP}'")
    with pytest.raises(KeyboardInterrupt), Supervisor(start, 2):
        _interrupted()
    for process in processes:
        assert process.returncode is not None
        assert process.stdin is not None
        assert process.stdin.closed
        with pytest.raises(ProcessLookupError):
            _wait_for_group_to_go(process.pid)


def _interrupted() -> None:
    time.sleep(0.2)
    raise KeyboardInterrupt


def _wait_for_group_to_go(group: int) -> None:
    for _ in range(2400):  # a grandchild is reaped by init, a moment later
        os.killpg(group, 0)
        time.sleep(0.05)


def test_failure_to_start_ends_those_already_started() -> None:
    start, processes = starter(SLEEP)

    def start_one(rank: int) -> subprocess.Popen[bytes]:
        if rank == 1:
            raise OSError("no more processes")
        return start(rank)

    with pytest.raises(OSError, match="no more processes"), Supervisor(start_one, 2):
        pass
    assert processes[0].returncode is not None


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_file_stays_open() -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        run("echo x", "echo y")
    assert len(os.listdir("/proc/self/fd")) == before

"""Training for real: a few steps with worker processes over gloo."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from thinwire.errors import LabError
from thinwire.lab.data import Task, load_task
from thinwire.lab.job import Job
from thinwire.lab.launch import Stops, launch, shared_task
from thinwire.lab.network import Loopback, Network, open_network
from thinwire.lab.outcome import Outcome
from thinwire.lab.recipe import Recipe, digits

WORKERS = 2


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("digits")


@pytest.fixture(scope="module")
def task_folder(task: Task):
    with shared_task(task) as folder:
        yield folder


def short(codec: str, **changes: object) -> Recipe:
    return replace(digits(), codec=codec, workers=WORKERS, steps=6, evaluations=2, **changes)


@pytest.fixture
def run(task: Task, task_folder: Path):
    def run(
        recipe: Recipe, stops: Stops | None = None, network: Network | None = None
    ) -> tuple[Outcome, list[dict]]:
        return launch(recipe, task, task_folder, network or Loopback(None), lambda row: None, stops)

    return run


def test_plain_ddp(run) -> None:
    outcome, rows = run(short("ddp"))
    assert (outcome.steps, outcome.codec, outcome.report) == (6, "ddp", None)
    assert outcome.bytes_per_step == 4 * 151_306  # 2 (N - 1) / N = 1 for two workers
    assert outcome.bytes_source.startswith("computed")
    evaluated = [row for row in rows if row["row"] == "evaluation"]
    assert [row["step"] for row in evaluated] == [3, 6]
    assert evaluated[1]["seconds"] > evaluated[0]["seconds"] > 0
    assert [row["step"] for row in rows if row["row"] == "step"] == [1, 2, 3, 4, 5, 6]


def test_stopped_and_resumed_run_ends_with_the_same_bits(run, tmp_path: Path) -> None:
    recipe = short("terngrad", momentum=0.9)
    path = tmp_path / "run.pt"
    whole, _ = run(recipe)
    stopped, _ = run(recipe, Stops(checkpoint=path, stop_at=3))
    resumed, rows = run(recipe, Stops(resume=path))
    assert stopped.steps == resumed.steps == 3
    assert stopped.parameters != whole.parameters
    assert resumed.parameters == whole.parameters
    assert [row["step"] for row in rows if row["row"] == "step"] == [4, 5, 6]


def test_emulated_link_runs_dense_in_place_of_ddp(run) -> None:
    network = Loopback("50mbit", "this is a test")
    assert '"ddp" is run as thinwire\'s "dense"' in network.note()
    outcome, _ = run(short("ddp"), network=network)
    assert (outcome.asked, outcome.codec) == ("ddp", "dense")
    assert outcome.bytes_per_step == pytest.approx(4 * 151_306, rel=0.02)
    assert outcome.step_ms > 4 * 151_306 * 8 / 50e6 * 1e3 * 0.9
    assert outcome.report is not None


class Recorded(Loopback):
    """Loopback that remembers its processes, for a test to kill one."""

    started: list["subprocess.Popen[str]"]

    def popen(self, rank: int, argv: Sequence[str], workers: int) -> "subprocess.Popen[str]":
        process = super().popen(rank, argv, workers)
        self.started.append(process)
        return process


def test_killed_worker_ends_the_run(task: Task, task_folder: Path) -> None:
    network = Recorded(None)
    object.__setattr__(network, "started", [])

    def kill_one(row: dict) -> None:
        network.started[1].send_signal(signal.SIGKILL)

    recipe = replace(short("ddp"), steps=5000)
    with pytest.raises(LabError, match="worker 1 was killed by SIGKILL; the other workers were stopped"):
        launch(recipe, task, task_folder, network, kill_one)
    assert all(process.returncode is not None for process in network.started)


def test_worker_ends_when_its_launcher_is_gone(task_folder: Path, tmp_path: Path) -> None:
    """A worker whose standard input ends does not wait for a peer that will never come."""
    job = Job(short("ddp"), str(task_folder), counters=False, link_rate=None).write(tmp_path)
    argv = [sys.executable, "-m", "thinwire.lab.train", str(job)]
    done = subprocess.run(argv, env={**os.environ, "RANK": "0"}, stdin=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 2


def test_mistakes_are_found_before_any_process_starts(task: Task, task_folder: Path) -> None:
    class NoProcess(Loopback):
        def popen(self, rank: int, argv: Sequence[str], workers: int) -> "subprocess.Popen[str]":
            raise AssertionError("a process was started")

    for recipe, sentence in (
        (short("nosuchcodec"), "nosuchcodec"),
        (short("ddp:3"), "ddp takes no options"),
        (short("ddp-powersgd:x"), "netlab"),
        (replace(short("ddp"), model="lenet"), "choose one of digits-cnn"),
        (replace(short("ddp"), batch=2000), "smaller batch"),
    ):
        with pytest.raises(Exception, match=sentence) as caught:
            launch(recipe, task, task_folder, NoProcess(None), lambda row: None)
        assert caught.type.__module__ == "thinwire.errors"


def test_networks_by_name() -> None:
    with open_network(None, 2) as network:
        assert network.kind == "loopback"
    with open_network("10mbit", 2, "emulated") as network:
        assert (network.kind, network.emulated_rate, network.counters) == ("emulated", "10mbit", False)
    for rate, choice, sentence in (
        (None, "netlab", "needs a rate"),
        ("10mbit", "wifi", "unknown network 'wifi'"),
        ("fast", "emulated", "fast"),
    ):
        with pytest.raises(LabError, match=sentence), open_network(rate, 2, choice):
            pass

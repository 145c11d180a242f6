"""Training for real: a few steps with worker processes over gloo."""

import json
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forked_workers import forked_loopback
from thinwire.errors import LabError
from thinwire_lab.data import Task, load_task
from thinwire_lab.net.network import Hosts, LabNetwork, Loopback, open_network
from thinwire_lab.report.record import RunOutcome
from thinwire_lab.run.checkpoint import CheckpointOptions
from thinwire_lab.run.launch import TrainingJob, launch, shared_task
from thinwire_lab.run.recipe import Recipe, digits

WORKERS = 2


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("digits")


@pytest.fixture(scope="module")
def task_folder(task: Task):
    with shared_task(task) as folder:
        yield folder


def short(codec: str, **changes: Any) -> Recipe:
    return replace(digits(), codec=codec, workers=WORKERS, steps=6, evaluations=2, **changes)


@pytest.fixture
def run(task: Task, task_folder: Path):
    def run(
        recipe: Recipe, options: CheckpointOptions | None = None, network: LabNetwork | None = None
    ) -> tuple[RunOutcome, list[dict]]:
        return launch(recipe, task, task_folder, network or Loopback(None), lambda row: None, options)

    return run


def test_plain_ddp(run) -> None:
    """The one run whose workers are started as users' are: `python -m thinwire_lab.run.worker`."""
    outcome, rows = run(short("ddp"))
    assert (outcome.steps, outcome.codec, outcome.report) == (6, "ddp", None)
    assert outcome.bytes_per_step == 4 * 151_306  # 2 (N - 1) / N = 1 for two workers
    assert outcome.bytes_source.startswith("computed")
    evaluated = [row for row in rows if row["row"] == "evaluation"]
    assert [row["step"] for row in evaluated] == [3, 6]
    assert evaluated[1]["seconds"] > evaluated[0]["seconds"] > 0
    assert [row["step"] for row in rows if row["row"] == "step"] == [1, 2, 3, 4, 5, 6]
    assert 0 < rows[-1]["waited_s"] < rows[-1]["seconds"], "it waits, but not all the time"


@forked_loopback()
def test_all_losses_and_some_histograms_are_told(run) -> None:
    outcome, rows = run(replace(short("terngrad"), steps=220, batch=4))
    told = [row for row in rows if row["row"] == "step"]
    assert len(told) == 200
    assert sum(len(row["losses"]) for row in told) == 220, "of every step"
    assert told[-1]["losses"][-1] == pytest.approx(told[-1]["loss"], rel=1e-4)
    looks = [row for row in rows if row["row"] == "histograms"]
    assert [row["step"] for row in looks] == [1, 28, 55, 83, 110, 138, 165, 193, 220]
    assert all(sum(layer["own"]) == sum(layer["mean"]) > 0 for row in looks for layer in row["layers"])
    last = [row for row in rows if row["row"] == "evaluation"][-1]
    assert last["scalars"]["thinwire/bytes_per_step"] == outcome.bytes_per_step


@forked_loopback()
def test_stopped_and_resumed_run_ends_with_the_same_bits(run, tmp_path: Path) -> None:
    recipe = short("terngrad", momentum=0.9)
    path = tmp_path / "run.pt"
    whole, _ = run(recipe)
    stopped, _ = run(recipe, CheckpointOptions(checkpoint=path, stop_at=3))
    resumed, rows = run(recipe, CheckpointOptions(resume=path))
    assert stopped.steps == resumed.steps == 3
    assert stopped.parameters != whole.parameters
    assert resumed.parameters == whole.parameters
    assert [row["step"] for row in rows if row["row"] == "step"] == [4, 5, 6]


@forked_loopback()
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

    def popen(self, rank: int, argv: Sequence[str], workers: int) -> "subprocess.Popen[bytes]":
        STARTED.append(super().popen(rank, argv, workers))
        return STARTED[-1]


STARTED: list["subprocess.Popen[bytes]"] = []


@forked_loopback()
def test_killed_worker_ends_the_run(task: Task, task_folder: Path) -> None:
    STARTED.clear()
    network = Recorded(None)

    def kill_one(row: dict) -> None:
        STARTED[1].send_signal(signal.SIGKILL)

    recipe = replace(short("ddp"), steps=5000)
    with pytest.raises(LabError, match="worker 1 was killed by SIGKILL; the other workers were stopped"):
        launch(recipe, task, task_folder, network, kill_one)
    assert all(process.returncode for process in STARTED)


@forked_loopback()
def test_worker_ends_when_its_launcher_is_gone(task_folder: Path, tmp_path: Path) -> None:
    """A worker whose standard input ends does not wait for a peer that will never come."""
    job = TrainingJob(short("ddp"), str(task_folder), counters=False, link_rate=None)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job.to_dict()))
    argv = [sys.executable, "-m", "thinwire_lab.run.worker", str(path)]
    worker = Loopback(None).popen(0, argv, WORKERS)
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.close()
    assert worker.wait(timeout=600) == 2
    worker.stdout.close()


def test_mistakes_are_found_before_any_process_starts(task: Task, task_folder: Path) -> None:
    class NoProcess(Loopback):
        def popen(self, rank: int, argv: Sequence[str], workers: int) -> "subprocess.Popen[bytes]":
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


def test_workers_that_share_a_host_follow_each_other() -> None:
    started: list[tuple[int, str, str, str]] = []

    class Lab:
        def popen(self, host: int, argv: list[str], env: dict[str, str], **_: object) -> None:
            started.append((host, env["RANK"], env["WORLD_SIZE"], env["LOCAL_RANK"]))

    hosts = Hosts(Lab(), "1gbit", per_host=2)  # type: ignore[arg-type]
    for rank in range(4):
        hosts.popen(rank, ["true"], workers=4)
    assert started == [(0, "0", "4", "0"), (0, "1", "4", "1"), (1, "2", "4", "0"), (1, "3", "4", "1")]
    with (
        pytest.raises(LabError, match="2 workers a host need hosts that netlab makes"),
        open_network("1gbit", 4, "emulated", per_host=2),
    ):
        pass


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

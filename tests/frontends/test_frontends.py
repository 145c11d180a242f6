"""Each front end trains two real processes, shows what it saves, and resumes with the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FRAMEWORKS = ("lightning", "accelerate", "transformers")
CODEC = "topk:0.1"  # error feedback: a resumed run without it would differ


def launch(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Two processes of torchrun."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    command = [*torchrun, str(HERE / script), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)


def train(framework: str, codec: str, folder: Path, steps: int, stop: int | None = None) -> dict[str, Any]:
    """What rank 0 said at the end."""
    folder.mkdir(exist_ok=True)
    ran = launch("jobs.py", framework, codec, str(folder), str(steps), *([] if stop is None else [str(stop)]))
    assert ran.returncode == 0, ran.stderr[-4000:]
    answer = next(line for line in ran.stdout.splitlines() if line.startswith("ANSWER "))
    found: dict[str, Any] = json.loads(answer.removeprefix("ANSWER "))
    return found


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_resumed_run_ends_with_the_same_bits(framework: str, tmp_path: Path) -> None:
    straight = train(framework, CODEC, tmp_path / "straight", 16)
    train(framework, CODEC, tmp_path / "resumed", 16, stop=8)
    resumed = train(framework, CODEC, tmp_path / "resumed", 16)
    assert resumed["digest"] == straight["digest"]
    assert straight["shown"]["thinwire/ratio"] > 5


def test_fsdp2_by_lightning_resumes_with_the_same_bits(tmp_path: Path) -> None:
    """qsgd draws by the number of the step, which is in the state."""
    straight = train("fsdp2", "qsgd:4", tmp_path / "straight", 16)
    train("fsdp2", "qsgd:4", tmp_path / "resumed", 16, stop=8)
    assert train("fsdp2", "qsgd:4", tmp_path / "resumed", 16)["digest"] == straight["digest"]
    assert straight["shown"]["thinwire/ratio"] > 5


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_state_of_error_feedback_is_what_makes_them_equal(framework: str, tmp_path: Path) -> None:
    """The check above can fail: dense and top-k end with different bits."""
    compressed = train(framework, CODEC, tmp_path / "compressed", 8)
    dense = train(framework, "dense", tmp_path / "dense", 8)
    assert compressed["digest"] != dense["digest"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_auto_is_the_default_and_trains(framework: str, tmp_path: Path) -> None:
    assert train(framework, "auto", tmp_path / "auto", 8)["shown"]["thinwire/ratio"] >= 1

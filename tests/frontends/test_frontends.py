"""Each front end trains two real processes, shows what it saves, and resumes with the same bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

JOBS = Path(__file__).with_name("jobs.py")
FRAMEWORKS = ("lightning", "accelerate", "transformers")
CODEC = "topk:0.1"  # error feedback: a resumed run without it would differ


def train(framework: str, codec: str, folder: Path, steps: int, stop: int | None = None) -> dict[str, Any]:
    """What rank 0 said at the end."""
    folder.mkdir(exist_ok=True)
    launch = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(JOBS),
    ]
    words = [framework, codec, str(folder), str(steps), *([] if stop is None else [str(stop)])]
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ran = subprocess.run([*launch, *words], capture_output=True, text=True, timeout=600, env=environment)
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


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_the_state_of_error_feedback_is_what_makes_them_equal(framework: str, tmp_path: Path) -> None:
    """The check above can fail: dense and top-k end with different bits."""
    compressed = train(framework, CODEC, tmp_path / "compressed", 8)
    dense = train(framework, "dense", tmp_path / "dense", 8)
    assert compressed["digest"] != dense["digest"]


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_auto_is_the_default_and_trains(framework: str, tmp_path: Path) -> None:
    assert train(framework, "auto", tmp_path / "auto", 8)["shown"]["thinwire/ratio"] >= 1

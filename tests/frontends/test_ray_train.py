"""Ray Train: workers that compress, and a killed one: Ray restarts the group from the checkpoint."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import ray
import torch
from jobs import EVERY, digest, examples, net
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig, get_checkpoint, get_context, report
from ray.train.torch import TorchConfig, TorchTrainer
from torch import nn

import thinwire.ray

STEPS = 12
pytestmark = pytest.mark.filterwarnings("default")  # Ray warns of its own deprecated options


def worker(config: dict[str, Any]) -> None:
    """Trains with a checkpoint every few steps; kills itself once at a given step, if asked to."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    rank = get_context().get_world_rank()
    plain = net()
    model, compressor = thinwire.ray.prepare_model(plain, config["codec"])
    assert compressor is not None
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    first = 0
    if (saved := get_checkpoint()) is not None:
        with saved.as_directory() as folder:
            state = torch.load(Path(folder) / "state.pt", weights_only=True)
        first = state["step"]
        plain.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        compressor.load_state_dict(state["compressor"])
    data = examples()
    for step in range(first, config["steps"]):
        if step == config["kill_at"] and rank == 1 and not Path(config["killed"]).exists():
            Path(config["killed"]).touch()
            os.kill(os.getpid(), signal.SIGKILL)
        x, y = data[(step * 16 + rank * 8) % 64 : (step * 16 + rank * 8) % 64 + 8]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        if (step + 1) % EVERY == 0:
            state = {
                "step": step + 1,
                "model": plain.state_dict(),
                "optimizer": optimizer.state_dict(),
                "compressor": compressor.state_dict(gather=True),
            }
            with tempfile.TemporaryDirectory() as folder:
                if rank == 0:
                    torch.save(state, Path(folder) / "state.pt")
                shown = {"digest": digest(plain)} | compressor.report().headline()
                report(shown, checkpoint=Checkpoint.from_directory(folder) if rank == 0 else None)
    compressor.close()


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Any:
    ray.init(
        num_cpus=4,
        include_dashboard=False,
        runtime_env={
            "env_vars": {"PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"}
        },
    )
    yield
    ray.shutdown()


def train(workers: int, folder: Path, kill_at: int | None = None) -> dict[str, Any]:
    config = {"codec": "topk:0.1", "steps": STEPS, "kill_at": kill_at, "killed": str(folder / "killed")}
    folder.mkdir()
    trainer = TorchTrainer(
        worker,
        train_loop_config=config,
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workers),
        run_config=RunConfig(
            name="run", storage_path=str(folder), failure_config=FailureConfig(max_failures=1)
        ),
    )
    metrics: dict[str, Any] = trainer.fit().metrics
    return metrics


@pytest.mark.parametrize("workers", [2, 4])
def test_a_killed_worker_changes_no_bit(workers: int, tmp_path: Path) -> None:
    straight = train(workers, tmp_path / "straight")
    disturbed = train(workers, tmp_path / "disturbed", kill_at=6)
    assert (tmp_path / "disturbed" / "killed").exists()
    assert disturbed["digest"] == straight["digest"]
    assert straight["thinwire/ratio"] > 3

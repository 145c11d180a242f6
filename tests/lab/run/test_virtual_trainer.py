"""Virtual workers: many in one process, with the bits of as many processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from forked_workers import forked_loopback
from thinwire.errors import CodecError, LabError
from thinwire_lab.data import Task, load_task
from thinwire_lab.net.network import LabNetwork, Loopback, Virtual, open_network
from thinwire_lab.report.record import RunOutcome
from thinwire_lab.run.checkpoint import CheckpointOptions
from thinwire_lab.run.launch import launch, shared_task
from thinwire_lab.run.recipe import Recipe, digits
from thinwire_lab.run.virtual_trainer import Draw, Replicas, VirtualTrainer

WORKERS = 3
EXACT = [
    "terngrad",
    "topk:0.01,start=2 @ feedback=momentum:mask=off,lr=on",
    "fft:0.85 @ schedule=guard",
]


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("digits")


@pytest.fixture(scope="module")
def task_folder(task: Task) -> Iterator[Path]:
    with shared_task(task) as folder, forked_loopback():
        yield folder


def short(codec: str, **changes: Any) -> Recipe:
    values: dict[str, Any] = {"workers": WORKERS, "steps": 5, "evaluations": 1, "weight_decay": 1e-3}
    return replace(digits(), codec=codec, **{**values, **changes})


def run(recipe: Recipe, task: Task, folder: Path, network: LabNetwork) -> RunOutcome:
    return launch(recipe, task, folder, network, lambda row: None)[0]


@pytest.mark.parametrize("codec", EXACT)
def test_the_bits_of_processes(codec: str, task: Task, task_folder: Path) -> None:
    recipe = short(codec, augment=codec == "terngrad")
    here, there = (run(recipe, task, task_folder, network) for network in (Virtual(), Loopback(None)))
    assert here.parameters == there.parameters
    assert here.bytes_per_step == there.bytes_per_step
    assert here.test_loss == pytest.approx(there.test_loss, rel=1e-9)


def test_ddp_is_dense_within_rounding(task: Task, task_folder: Path) -> None:
    here, there = (run(short("ddp"), task, task_folder, network) for network in (Virtual(), Loopback(None)))
    assert (here.asked, here.codec) == ("ddp", "dense")
    assert here.bytes_per_step == pytest.approx(there.bytes_per_step)
    assert here.test_loss == pytest.approx(there.test_loss, rel=1e-4)


def test_many_workers(task: Task) -> None:
    trainer = VirtualTrainer(short("sign", workers=32, batch=4, steps=2), task)
    try:
        losses = list(trainer.steps(0, 2))
        assert len(losses) == trainer.step == 2
        assert {compressor.report().steps for compressor in trainer.compressors} == {2}
    finally:
        trainer.close()


class Seen:
    """What every worker computed."""

    def __init__(self) -> None:
        self.gradients: dict[int, torch.Tensor] = {}

    def note(self, rank: int, loss: float, flat: torch.Tensor) -> None:
        self.gradients[rank] = flat


class Drawing(nn.Module):
    """Noise in the forward pass, and statistics."""

    def __init__(self, noise: float) -> None:
        super().__init__()
        self.fc = nn.Linear(64, 10)
        self.drop, self.norm = nn.Dropout(noise), nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x.flatten(1))
        time.sleep(0.01)  # others may run now
        logits: torch.Tensor = self.fc(self.drop(x))
        return logits


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_replicas_draw_as_processes_do(noise: float, task: Task) -> None:
    """On one thread or on three, with dropout or without: the same gradients, and worker 0's statistics."""
    order = torch.arange(80).view(5, 16).numpy()
    draws = [Draw(indices, 100 + rank, augment=True) for rank, indices in enumerate(order)]
    found, statistics = [], []
    for count in (1, 3):
        torch.manual_seed(0)
        net, seen = Drawing(noise), Seen()
        replicas = Replicas(net, task, count)
        replicas.gradients(draws, seen.note)
        replicas.close()
        found.append(seen.gradients)
        statistics.append([buffer.clone() for buffer in net.buffers()])
    torch.manual_seed(0)
    alone = Drawing(noise)
    Replicas(alone, task, 1).gradients(draws[:1], lambda rank, loss, flat: None)
    statistics.append(list(alone.buffers()))
    assert all(torch.equal(found[0][rank], found[1][rank]) for rank in range(5))
    assert all(torch.equal(a, b) and torch.equal(a, c) for a, b, c in zip(*statistics, strict=True))


def test_what_virtual_workers_cannot_do(task: Task, task_folder: Path, tmp_path: Path) -> None:
    with pytest.raises(LabError, match="has no links: leave out --rate"), open_network("1gbit", 2, "virtual"):
        pass
    with pytest.raises(LabError, match="needs processes"):
        Virtual().codec("ddp-powersgd:2")
    saved = CheckpointOptions(checkpoint=tmp_path / "run.pt")
    with pytest.raises(LabError, match="cannot be saved or resumed"):
        launch(short("sign"), task, task_folder, Virtual(), lambda row: None, saved)
    with pytest.raises(LabError, match="virtual workers have none"):
        VirtualTrainer(short("auto"), task)
    with pytest.raises(CodecError, match="does not fit"):
        VirtualTrainer(short("sign:start=x"), task)

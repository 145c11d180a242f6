"""Virtual workers with local steps, and as FSDP2 shares a model: the same code as in processes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from thinwire.errors import LabError
from thinwire_lab.data import Task, load_task
from thinwire_lab.run.ddp_exchange import attach
from thinwire_lab.run.local_trainer import VirtualLocalTrainer
from thinwire_lab.run.recipe import Recipe, digits, read_codec_choice
from thinwire_lab.run.sharded_trainer import VirtualShardedTrainer
from thinwire_lab.run.virtual_trainer import VirtualTrainer

STEPS = 12


@pytest.fixture(scope="module")
def task() -> Task:
    return load_task("digits")


def short(codec: str) -> Recipe:
    return replace(digits(), codec=codec, workers=3, steps=STEPS)


def parameters(trainer: VirtualTrainer | VirtualLocalTrainer | VirtualShardedTrainer) -> torch.Tensor:
    losses = list(trainer.steps(0, STEPS))
    trainer.settle()
    trainer.close()
    assert losses[-1] < losses[0]
    return torch.cat([parameter.detach().flatten() for parameter in trainer.net.parameters()])


def test_one_local_step_a_round_is_plain_sgd_of_the_mean(task: Task) -> None:
    """Momentum apart: with lr 1 and no outer momentum the mean of updates is the update of the mean."""
    recipe = replace(short("dense"), momentum=0.0)
    plain = parameters(VirtualTrainer(recipe, task))
    local = parameters(VirtualLocalTrainer(replace(recipe, codec="dense @ every=1 outer=1/0"), task))
    assert torch.allclose(plain, local, atol=1e-5)


def test_local_steps_end_with_all_workers_alike(task: Task) -> None:
    trainer = VirtualLocalTrainer(short("qsgd:4 @ every=5 outer=1/0"), task)
    parameters(trainer)
    for net in trainer.nets:
        for own, first in zip(net.parameters(), trainer.net.parameters(), strict=True):
            assert torch.equal(own, first)
    assert trainer.locals[0].report().steps == 3  # two whole rounds, and the rest


def test_a_shared_model_trains_as_ddp_does(task: Task) -> None:
    plain = parameters(VirtualTrainer(short("dense"), task))
    shared = parameters(VirtualShardedTrainer(short("dense @ weights=raw"), task))
    assert torch.allclose(plain, shared, atol=1e-5)


def test_differences_keep_up_with_the_masters(task: Task) -> None:
    trainer = VirtualShardedTrainer(short("qsgd:4 @ weights=difference>>qsgd:4"), task)
    gathered = parameters(trainer)
    masters = torch.cat([parameter.detach().flatten() for parameter in trainer.masters.parameters()])
    assert not torch.equal(gathered, masters)
    assert (gathered - masters).norm() < 0.01 * masters.norm()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("qsgd:4 @ outer=1/0", "give every= too"),
        ("ddp @ every=5", "these take no"),
        ("qsgd:4 @ every=x", "must be a number of steps"),
    ],
)
def test_bad_local_steps_are_refused(text: str, words: str) -> None:
    with pytest.raises(LabError, match=words):
        read_codec_choice(text)


def test_runs_as_fsdp2_are_virtual() -> None:
    with pytest.raises(LabError, match="--network virtual"):
        attach(torch.nn.Linear(2, 2), "qsgd:4 @ weights=raw", 0, None)

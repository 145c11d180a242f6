"""Front ends and what users get wrong: one sentence each, or training goes on and says so."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from accelerate.utils import DistributedType
from test_frontends import CODEC, FRAMEWORKS, launch
from torch import nn

import thinwire.accelerate
import thinwire.transformers
from thinwire.errors import PlanError
from thinwire.lightning import Compression


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_checkpoint_without_our_state_goes_on_and_says_so(framework: str, tmp_path: Path) -> None:
    assert launch("jobs.py", framework, "plain", str(tmp_path), "16", "8").returncode == 0
    went_on = launch("jobs.py", framework, CODEC, str(tmp_path), "16")
    assert went_on.returncode == 0, went_on.stderr[-4000:]
    assert "thinwire/ratio" in went_on.stdout
    assert "has no state of thinwire: error feedback and auto begin anew" in went_on.stderr


def test_ranks_with_different_front_ends(tmp_path: Path) -> None:
    """They may differ in the door, not in what they send."""
    said = sayings("different_front_ends", tmp_path)
    assert len(said) == 2
    for one in said:
        same, different = one.split(" | ")
        assert same == "trained"
        assert "rank" in different
        assert "topk" in different or "plan" in different


def test_an_accelerator_that_wraps_a_second_model(tmp_path: Path) -> None:
    said = sayings("prepared_twice", tmp_path)
    assert len(said) == 2
    assert all("wraps a second model: thinwire compresses one" in one for one in said)


def test_a_trainer_that_trains_twice(tmp_path: Path) -> None:
    """Its model keeps its wrapper and its compressor; one that is made anew is wrapped again."""
    assert sayings("trained_twice", tmp_path) == ["8 steps | 4 steps"] * 2


def test_an_accelerator_is_asked_once_and_before_it_prepares(tmp_path: Path) -> None:
    for one in sayings("asked_late_or_twice", tmp_path):
        late, twice, beside = one.split(" | ")
        assert "call compress before accelerator.prepare" in late
        assert "was called for this accelerator before" in twice
        assert "comm_hook=fp16 and thinwire exclude one another" in beside


def test_a_trainer_that_wraps_its_model_again_for_smaller_batches(tmp_path: Path) -> None:
    assert sayings("wrapped_again", tmp_path) == ["4 steps of 4"] * 2


def test_a_trainer_whose_model_is_wrapped_already(tmp_path: Path) -> None:
    """By its user: it would wrap it twice. By itself: it would go on without compression, and not say so."""
    said = sayings("wrapped_before", tmp_path)
    assert len(said) == 2
    for one in said:
        by_user, by_itself, asked_twice = one.split(" | ")
        assert "is wrapped twice" in by_user
        assert "this Trainer has trained already: call compress before" in by_itself
        assert "was called for this accelerator before" in asked_twice


def test_fsdp1_under_lightning(tmp_path: Path) -> None:
    said = sayings("under_fsdp1", tmp_path)
    assert len(said) == 2
    assert all("FSDP1" in one and "fully_shard" in one for one in said)


def sayings(job: str, folder: Path) -> list[str]:
    """What the ranks said."""
    ran = launch("bad_jobs.py", job, str(folder))
    assert ran.returncode == 0, ran.stderr[-4000:]
    return [line.removeprefix("SAID ") for line in ran.stdout.splitlines() if line.startswith("SAID ")]


@pytest.mark.parametrize(
    "kind", [DistributedType.DEEPSPEED, DistributedType.FSDP, DistributedType.MEGATRON_LM]
)
def test_what_is_not_plain_ddp_is_refused(kind: DistributedType) -> None:
    accelerator: Any = SimpleNamespace(distributed_type=kind, _models=[])
    with pytest.raises(PlanError, match=f"needs plain DDP, not {kind.value}: leave"):
        thinwire.accelerate.compress(accelerator)
    trainer: Any = SimpleNamespace(accelerator=accelerator)
    with pytest.raises(PlanError, match=f"needs plain DDP, not {kind.value}: leave"):
        thinwire.transformers.compress(trainer)


def test_a_strategy_of_lightning_that_is_neither() -> None:
    class DeepSpeedStrategy:
        model = nn.Linear(2, 2)

    trainer: Any = SimpleNamespace(strategy=DeepSpeedStrategy(), world_size=2, optimizers=[])
    module: Any = None
    with pytest.raises(PlanError, match="ends in DDP or FSDP2, not DeepSpeedStrategy"):
        Compression().on_fit_start(trainer, module)

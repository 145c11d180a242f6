"""torch.distributed.checkpoint: a compressor is a Stateful whose every rank comes back."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from failing import failure_of
from launch import Teams
from rank import Failure
from torch import Tensor
from torch.distributed.checkpoint.stateful import Stateful
from training import Wrapped, fit, mlp, wrap

FIRST, SECOND = 3, 4
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "topk": ("topk:0.05", {}),
    "dgc": ("dgc:0.05,warmup=5", {}),
    "powersgd": ("powersgd:2", {"route": "sharded"}),
    "gradiveq": ("gradiveq:8", {"route": "sharded"}),
    "guarded": ("topk:0.05", {"schedule": "steps:0=1/4=0.5"}),
    "nodes": ("topk:0.05", {"hierarchy": 2}),
}


class Gathered:
    """A Stateful as people write their own, by the state of all ranks: for another number of them."""

    def __init__(self, it: Wrapped) -> None:
        assert it.compressor is not None
        self.model, self.compressor = it.model.module, it.compressor

    def state_dict(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "compressor": self.compressor.state_dict(gather=True)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        self.compressor.load_state_dict(state["compressor"])


def parts(it: Wrapped, gather: bool) -> dict[str, Any]:
    if gather:
        return {"app": Gathered(it)}
    assert isinstance(it.compressor, Stateful)
    return {"c": it.compressor, "model": it.model.module}


def straight(codec: str, options: dict[str, Any]) -> Tensor:
    with wrap(mlp(), codec, **options) as it:
        fit(it.model, FIRST + SECOND)
        return it.parameters()


def save(codec: str, options: dict[str, Any], folder: str, gather: bool) -> list[Any]:
    warnings.simplefilter("ignore")  # DCP's own
    with wrap(mlp(), codec, **options) as it:
        fit(it.model, FIRST)
        dcp.save(parts(it, gather), checkpoint_id=folder)
        return held(it)


def go_on(codec: str, options: dict[str, Any], folder: str, gather: bool) -> tuple[Tensor, list[Any]]:
    warnings.simplefilter("ignore")
    with wrap(mlp(), codec, **options) as it:
        dcp.load(parts(it, gather), checkpoint_id=folder)
        loaded = held(it)
        fit(it.model, SECOND, start=FIRST)
        return it.parameters(), loaded


def held(it: Wrapped) -> list[Any]:
    """What the memories of this rank hold."""
    assert it.compressor is not None
    feedbacks = it.compressor.engine.feedbacks.values()
    return [t.double().sum().item() for m in feedbacks for s in m.state().values() for t in s.values()]


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("run", RUNS)
def test_a_resumed_run_has_the_same_bits(teams: Teams, tmp_path: Path, run: str, gather: bool) -> None:
    team = teams(4)
    expected = team.run(straight, *RUNS[run])[0]
    saved = team.run(save, *RUNS[run], str(tmp_path), gather)
    resumed = team.run(go_on, *RUNS[run], str(tmp_path), gather)
    for rank, (parameters, loaded) in enumerate(resumed):
        assert loaded == saved[rank]
        assert torch.equal(parameters, expected)


@pytest.mark.parametrize("world", [2, 5])
def test_another_number_of_ranks_loads_the_gathered_state(teams: Teams, tmp_path: Path, world: int) -> None:
    saved = teams(3).run(save, *RUNS["topk"], str(tmp_path), True)
    loaded = [held for _, held in teams(world).run(go_on, *RUNS["topk"], str(tmp_path), True)]
    assert sum(map(sum, loaded)) == pytest.approx(sum(map(sum, saved)), rel=1e-5)


def refused(codec: str, options: dict[str, Any], folder: str) -> Failure:
    warnings.simplefilter("ignore")
    with wrap(mlp(), codec, **options) as it:
        return failure_of(lambda: load_own(it, folder))


def load_own(it: Wrapped, folder: str) -> None:
    try:
        dcp.load(parts(it, gather=False), checkpoint_id=folder)
    except dcp.CheckpointException as error:  # no Exception
        raise RuntimeError(str(error)) from error


@pytest.mark.parametrize(("world", "words"), [(2, "rank 0 of 3, this is rank 0 of 2"), (5, "rank 3")])
def test_another_number_of_ranks_is_refused_else(
    teams: Teams, tmp_path: Path, world: int, words: str
) -> None:
    teams(3).run(save, *RUNS["topk"], str(tmp_path), False)
    failure = teams(world).run(refused, *RUNS["topk"], str(tmp_path))[0]
    assert words in failure.text
    assert "gather=True" in failure.text

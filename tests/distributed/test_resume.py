"""State: a run that is stopped and resumed ends with the bits of one that was not."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from failing import failure_of
from launch import NewTeam, Team, Teams
from rank import Failure
from torch import Tensor
from training import fit, mlp, wrap

from thinwire.exchange.packing import opened
from thinwire.exchange.state import STATE_VERSION

FIRST, SECOND = 3, 4
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "terngrad": ("terngrad", {}),
    "terngrad residual": ("terngrad", {"feedback": "residual", "keep_dense": ()}),
    "own scales residual": ("terngrad:scales=own", {"feedback": "residual"}),
    "bf16 residual sharded": ("bf16", {"feedback": "residual", "route": "sharded"}),
    "qsgd": ("qsgd:4", {}),
    "sign": ("sign", {}),
    "topk": ("topk:0.05", {}),
    "dgc": ("dgc:0.05,warmup=5", {}),
    "fft": ("fft:0.85,chunk=64", {}),
    "rangefloat": ("rangefloat:8", {}),
}


def straight(codec: str, options: dict[str, Any]) -> Tensor:
    with wrap(mlp(), codec, **options) as it:
        fit(it.model, FIRST + SECOND)
        return it.parameters()


def begin(codec: str, options: dict[str, Any]) -> tuple[bytes, bytes]:
    """Trains the first steps and saves, as a training script would: with the local and the gathered state."""
    with wrap(mlp(), codec, **options) as it:
        assert it.compressor is not None
        fit(it.model, FIRST)
        weights = it.model.module.state_dict()
        states = it.compressor.state_dict(), it.compressor.state_dict(gather=True)
    local, gathered = (_saved({"model": weights, "compressor": state}) for state in states)
    return local, gathered


def _saved(checkpoint: dict[str, Any]) -> bytes:
    file = io.BytesIO()
    torch.save(checkpoint, file)
    return file.getvalue()


def go_on(codec: str, options: dict[str, Any], saved: list[bytes]) -> Tensor:
    """Loads this rank's file, or the one file there is, and trains the rest."""
    mine = saved[dist.get_rank()] if len(saved) > 1 else saved[0]
    checkpoint = torch.load(io.BytesIO(mine), weights_only=True)
    net = mlp()
    net.load_state_dict(checkpoint["model"])
    with wrap(net, codec, **options) as it:
        assert it.compressor is not None
        it.compressor.load_state_dict(checkpoint["compressor"])
        fit(it.model, SECOND, start=FIRST)
        return it.parameters()


@pytest.mark.parametrize(
    ("run", "world"),
    [
        *((run, 3) for run in RUNS),
        *((run, world) for run in ("terngrad residual", "dgc") for world in (2, 5)),
    ],
)
def test_stopped_and_resumed_gives_the_same_bits(teams: Teams, run: str, world: int) -> None:
    team = teams(world)
    expected = team.run(straight, *RUNS[run])[0]
    local, gathered = zip(*team.run(begin, *RUNS[run]), strict=True)
    for files in (list(local), [gathered[0]]):  # each rank its own file, or one file for all
        resumed = team.run(go_on, *RUNS[run], files)
        assert all(torch.equal(parameters, expected) for parameters in resumed)


def test_a_new_job_goes_on_where_a_killed_one_stopped(new_team: NewTeam) -> None:
    job = new_team(2)
    saved = [local for local, _ in job.run(begin, *RUNS["terngrad residual"])]
    expected = job.run(straight, *RUNS["terngrad residual"])[0]
    job.kill(0, 1)
    assert torch.equal(new_team(2).run(go_on, *RUNS["terngrad residual"], saved)[0], expected)


def gathered_state(codec: str, options: dict[str, Any]) -> dict[str, Any]:
    with wrap(mlp(), codec, **options) as it:
        assert it.compressor is not None
        fit(it.model, FIRST)
        return dict(opened(it.compressor.state_dict(gather=True), rank=0))


def loaded_and_gathered(codec: str, options: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    with wrap(mlp(), codec, **options) as it:
        assert it.compressor is not None
        it.compressor.load_state_dict(state)
        return dict(opened(it.compressor.state_dict(gather=True), rank=0))


def held_back(state: dict[str, Any], name: str) -> Tensor:
    """The sum over the ranks."""
    return torch.stack([rank["residual"]["residual"][name].double() for rank in state["ranks"]]).sum(0)


@pytest.mark.parametrize("world", [2, 5])
def test_another_world_size_loses_nothing_that_was_held_back(teams: Teams, world: int) -> None:
    """What the ranks held back adds up to the same."""
    run = RUNS["terngrad residual"]
    before = teams(3).run(gathered_state, *run)[0]
    after = teams(world).run(loaded_and_gathered, *run, before)[0]
    assert len(after["ranks"]) == world
    for name, _ in mlp().named_parameters():
        assert torch.allclose(held_back(before, name), held_back(after, name), rtol=1e-5, atol=1e-7)


def state_of(seed: int, codec: str) -> dict[str, Any]:
    with wrap(mlp(), codec, seed=seed) as it:
        assert it.compressor is not None
        fit(it.model, 1)
        return dict(opened(it.compressor.state_dict(), dist.get_rank()))


def refusal_of(state: Any) -> tuple[Failure, bool] | None:
    """Why the compressor of rank 0, with seed 0, refuses the state, and whether it stayed as it was."""
    with wrap(mlp(), "terngrad") as it:
        compressor = it.compressor
        assert compressor is not None
        if dist.get_rank() != 0:
            return None
        before = compressor.state_dict()
        failure = failure_of(lambda: compressor.load_state_dict(state))
        return failure, before == compressor.state_dict()


def test_a_damaged_state_is_refused(teams: Teams) -> None:
    failure, unchanged = teams(2).run(refusal_of, {"state of all ranks": b"\x09\0\0\0\0\0\0\0{broken"})[0]
    assert failure.kinds[0] == "StateError", failure.trace
    assert "damaged" in failure.text
    assert unchanged


def wrong_states(team: Team) -> dict[str, tuple[Any, list[str]]]:
    """States that do not fit rank 0, and what the message must say."""
    right, of_rank_1 = team.run(state_of, 0, "terngrad")
    return {
        "another rank": (of_rank_1, ["rank 1 of 2", "rank 0 of 2", "gather=True"]),
        "another world": ({**right, "world": 4}, ["rank 0 of 4", "rank 0 of 2"]),
        "another version": ({**right, "version": 99}, ["version 99", f"version {STATE_VERSION}"]),
        "another seed": (team.run(state_of, 5, "terngrad")[0], ["seed 5", "has 0"]),
        "another codec": (team.run(state_of, 0, "fp16")[0], ["another model or codec"]),
        "another model": ({**right, "plan": right["plan"][:-1]}, ["another model or codec", "4.bias"]),
        "another order": ({**right, "plan": right["plan"][::-1]}, ["another order"]),
        "no state": ({"model": 1}, ["no state of a thinwire compressor"]),
        "no dict": (None, ["no state of a thinwire compressor"]),
    }


def test_states_that_do_not_fit_are_refused_and_change_nothing(teams: Teams) -> None:
    team = teams(2)
    for name, (state, words) in wrong_states(team).items():
        failure, unchanged = team.run(refusal_of, state)[0]
        assert failure.kinds[0] == "StateError", (name, failure.trace)
        assert unchanged, name
        for word in words:
            assert word in failure.text, (name, failure.text)

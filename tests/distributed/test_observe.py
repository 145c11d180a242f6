"""observe() under real DDP: all ranks alike, an error when some ranks are silent, states that resume."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.distributed as dist
from failing import failure_of
from launch import NewTeam, Teams
from rank import Failure
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from training import Wrapped, batch, descend, loss_of, mlp, wrap

import thinwire as tw

GUARD = "guard:window=2,patience=1,gain=0.5"
CODECS = ("topk:0.05", "qsgd:2", "fft:0.95")


def fit(it: Wrapped, first: int, last: int, silent_from: int | None = None) -> list[float]:
    """Trains and observes, as a script does; rank 1 stops observing at some step."""
    assert it.compressor is not None
    levels = []
    for step in range(first, last):
        loss = loss_of(it.model(batch(step, 20)))
        loss.backward()
        descend(it.model)
        if silent_from is None or dist.get_rank() != 1 or step < silent_from:
            it.compressor.observe(loss, lr=0.1, epoch=step / 4)
        levels.append(it.compressor.compression_level)
    return levels


def straight(codec: str, schedule: str) -> tuple[Tensor, list[float], dict[str, Any]]:
    with wrap(mlp(), codec, schedule=schedule) as it:
        levels = fit(it, 0, 10)
        assert it.compressor is not None
        return it.parameters(), levels, it.compressor.report().to_dict()


@pytest.mark.parametrize("codec", CODECS)
def test_all_ranks_alike(teams: Teams, codec: str) -> None:
    answers = teams(3).run(straight, codec, GUARD)
    parameters, levels, report = answers[0]
    assert min(levels) < 1
    for other, their_shares, their_report in answers[1:]:
        assert torch.equal(other, parameters)
        assert their_shares == levels
        assert their_report["changes"] == report["changes"]
    assert report["schedule"] == GUARD
    assert [change["compression_level"] for change in report["changes"]][:1] == [0.5]
    assert (report["theta"] is None) == (codec == "qsgd:2")


def halves(codec: str, schedule: str, gather: bool) -> tuple[Tensor, list[float]]:
    with wrap(mlp(), codec, schedule=schedule) as it:
        levels = fit(it, 0, 5)
        assert it.compressor is not None
        state, weights = it.compressor.state_dict(gather=gather), it.model.module.state_dict()
    net = mlp()
    net.load_state_dict(weights)
    with wrap(net, codec, schedule=schedule) as it:
        assert it.compressor is not None
        it.compressor.observe(math.nan)  # of a life before: loading ends it
        it.compressor.load_state_dict(state)
        levels += fit(it, 5, 10)
        return it.parameters(), levels


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("codec", CODECS)
def test_stopped_and_resumed_gives_the_same_bits(teams: Teams, codec: str, gather: bool) -> None:
    expected = teams(2).run(straight, codec, GUARD)[0]
    for parameters, levels in teams(2).run(halves, codec, GUARD, gather):
        assert levels == expected[1]
        assert torch.equal(parameters, expected[0])


def silent(ddp: dict[str, Any]) -> list[Failure]:
    """What is raised first, and what later; later, DDP itself fails if it looks for unused parameters."""
    it = wrap(mlp(), "topk:0.05", ddp, schedule="guard")
    first = failure_of(lambda: fit(it, 0, 6, silent_from=2))
    return [first] if ddp else [first, failure_of(lambda: fit(it, 6, 7))]


@pytest.mark.parametrize("ddp", [{}, {"find_unused_parameters": True}])
def test_observing_on_some_ranks_only_is_an_error_that_says_so(
    new_team: NewTeam, ddp: dict[str, Any]
) -> None:
    for failures in new_team(3).run(silent, ddp):
        for failure in failures:
            assert failure.kinds[0] == "PlanError", failure.trace
            assert "rank 0, 2 called it once, rank 1 did not" in failure.text
            assert "on every rank" in failure.text


def without_control() -> float:
    with wrap(mlp(), "topk:0.05") as it:
        fit(it, 0, 2, silent_from=1)
        assert it.compressor is not None
        it.compressor.observe(torch.zeros(3))  # not even looked at
        return it.compressor.compression_level


def test_without_a_control_observe_does_nothing(teams: Teams) -> None:
    assert teams(2).run(without_control) == [1.0, 1.0]


def nonsense() -> Failure:
    with wrap(mlp(), "topk:0.05", schedule="guard") as it:
        compressor = it.compressor
        assert compressor is not None
        failure = failure_of(lambda: compressor.observe(torch.zeros(3)))
        fit(it, 0, 1)  # and goes on as if it had not been said
        return failure


def test_what_is_no_number_is_refused_by_observe_itself(teams: Teams) -> None:
    for failure in teams(2).run(nonsense):
        assert failure.kinds[0] == "PlanError"
        assert "Tensor of shape [3]" in failure.text


def no_level() -> Failure:
    return failure_of(lambda: wrap(mlp(), "terngrad", schedule="guard"))


def test_a_codec_without_level(teams: Teams) -> None:
    for failure in teams(2).run(no_level):
        assert failure.kinds[0] == "CodecError"
        assert "terngrad has no compression level to lower" in failure.text


def nameless() -> tuple[Tensor, float]:
    model = DistributedDataParallel(mlp(), bucket_cap_mb=0.01)
    options: dict[str, Any] = {"keep_dense": ("vector", "small"), "schedule": "diminish:4"}
    state, hook = tw.ddp_hook("topk:0.05", **options)
    model.register_comm_hook(state, hook)
    for step in range(4):
        loss_of(model(batch(step, 20))).backward()
        descend(model)
        state.observe(lr=0.1 / (1 + step))
    state.wait()
    level = state.compression_level
    state.close()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), level


def test_without_names(teams: Teams) -> None:
    """theta comes from the codec, not from tensors that arrive with the first bucket."""
    answers = teams(2).run(nameless)
    assert torch.equal(answers[0][0], answers[1][0])
    assert answers[0][1] == math.floor(4 * 0.1 / 3 / 0.95 * 32) / 32

"""Local steps over real processes: the same bits, a rank that comes from another step, one that dies."""

from __future__ import annotations

import os
import signal
from typing import Any

import torch
import torch.distributed as dist
from failing import failure_of
from launch import NewTeam, Teams
from rank import Failure
from torch import Tensor, nn
from training import mlp

import thinwire as tw


def local_steps(net: nn.Module, diloco: tw.DiLoCo, steps: int) -> None:
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    for _ in range(steps):
        draw = torch.Generator().manual_seed(100 * diloco.local_steps + dist.get_rank())
        net(torch.randn(8, 20, generator=draw)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        diloco.step()


def trained(options: dict[str, Any]) -> tuple[Tensor, float]:
    torch.manual_seed(dist.get_rank())  # different at first
    net = mlp()
    with tw.DiLoCo(net, every=4, **options) as diloco:
        local_steps(net, diloco, 10)
        diloco.sync()
        return torch.cat([p.detach().flatten() for p in net.parameters()]), diloco.report().ratio


def test_all_ranks_end_with_the_same_bits(teams: Teams) -> None:
    for options in ({"codec": "qsgd:4"}, {"codec": "sparseloco", "fragments": 2, "overlap": 1}):
        results = teams(3).run(trained, options)
        assert all(torch.equal(parameters, results[0][0]) for parameters, _ in results)
        assert results[0][1] > 3


def from_another_step(victim: int) -> Failure:
    """One rank has loaded an older checkpoint than the others, or joined late."""
    net = mlp()
    diloco = tw.DiLoCo(net, every=4)
    local_steps(net, diloco, 4)
    diloco.local_steps -= 4 * (dist.get_rank() == victim)
    failure = failure_of(lambda: local_steps(net, diloco, 4))
    diloco.close()
    return failure


def test_a_rank_from_another_step_is_named(new_team: NewTeam) -> None:
    for failure in new_team(3).answers(from_another_step, 2):
        assert "rank 2 DiLoCo.step (local step 4)" in failure.text
        assert "DiLoCo.step (local step 8)" in failure.text  # of rank 0, rank 1 or both: whom it has heard


def dies(victim: int) -> Failure:
    net = mlp()
    diloco = tw.DiLoCo(net, every=4)
    local_steps(net, diloco, 6)
    if dist.get_rank() == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    return failure_of(lambda: local_steps(net, diloco, 4))


def test_a_dead_rank_is_named_at_the_end_of_the_round(new_team: NewTeam) -> None:
    team = new_team(3)
    team.start(dies, 1)
    for failure in team.collect([0, 2]):
        assert "rank 1 closed the connection or died" in failure.text


def other_settings() -> Failure:
    return failure_of(lambda: tw.DiLoCo(mlp(), every=4 + dist.get_rank()))


def test_ranks_with_different_local_steps_are_told_apart(new_team: NewTeam) -> None:
    for failure in new_team(2).answers(other_settings):
        assert "rank 0 has every=4" in failure.text
        assert "rank 1 has every=5" in failure.text

"""The exchange for any loop over real processes: who does not come, changes a shape or dies is named."""

from __future__ import annotations

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist
from failing import failure_of
from launch import NewTeam, Teams
from rank import Failure

import thinwire as tw


def mean(codec: str) -> tuple[torch.Tensor, float]:
    w = torch.full((40, 50), float(dist.get_rank()))
    with tw.Exchange({"w": w}, codec) as exchange:
        exchange.mean_()
        return w, exchange.report().ratio


@pytest.mark.parametrize(("codec", "error"), [("dense", 1e-6), ("qsgd:4", 2 / 7 / 3 + 1e-6)])
def test_the_mean_over_processes(teams: Teams, codec: str, error: float) -> None:
    for w, _ in teams(3).run(mean, codec):
        assert torch.allclose(w, torch.ones(40, 50), atol=error)


def some_only(victim: int) -> Failure | None:
    """One rank goes on to a barrier instead of `mean_`; the script of a user who wrote `if rank == 0:`."""
    w = torch.ones(40, 50)
    exchange = tw.Exchange({"w": w}, "dense")
    exchange.mean_()

    def go() -> None:
        if dist.get_rank() == victim:
            dist.barrier()
        exchange.mean_()

    failure = failure_of(go)
    exchange.close()
    return failure


def test_mean_on_some_ranks_only_names_who_did_not_come(new_team: NewTeam) -> None:
    answers = new_team(3).answers(some_only, 1)
    for rank in (0, 2):
        assert "rank 1 did not call Exchange.mean_ (or start), rank 0, 2 did" in answers[rank].text


def changed(victim: int) -> Failure | None:
    w = {"w": torch.ones(40, 50)}
    exchange = tw.Exchange(w, "dense")
    other = {"w": torch.ones(50, 40)} if dist.get_rank() == victim else w
    failure = failure_of(lambda: exchange.mean_(other))
    exchange.close()
    return failure


def test_a_changed_shape_is_named_on_all_ranks(new_team: NewTeam) -> None:
    answers = new_team(3).answers(changed, 2)
    assert "w has changed" in answers[2].text
    for rank in (0, 1):
        assert "rank 2 failed" in answers[rank].text
        assert "w has changed" in answers[rank].text


def dies(victim: int) -> Failure | None:
    w = {"w": torch.ones(400, 500)}
    exchange = tw.Exchange(w, "qsgd:4")
    exchange.mean_()
    if dist.get_rank() == victim:
        time.sleep(0.2)
        os.kill(os.getpid(), signal.SIGKILL)
    return failure_of(lambda: exchange.mean_())


def test_a_dead_rank_is_named(new_team: NewTeam) -> None:
    team = new_team(3)
    team.start(dies, 1)
    for failure in team.collect([0, 2]):
        assert "rank 1 closed the connection or died" in failure.text

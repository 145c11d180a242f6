"""The launcher itself: values, failures, hangs and deaths arrive, and nothing outlives a team."""

from __future__ import annotations

import os
import signal
import time

import torch
import torch.distributed as dist
from launch import Gone, Hang, NewTeam, Server, Team
from rank import Leave, Raised


def sum_of_ranks(offset: int) -> int:
    total = torch.tensor([dist.get_rank() + offset])
    dist.all_reduce(total)
    return int(total.item())


def four_fates() -> str:
    rank = dist.get_rank()
    if rank == 1:
        raise ValueError("as ordered")
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    if rank == 3:
        time.sleep(1000)
    return "well"


def test_values_come_in_rank_order_and_exit_codes_are_kept(new_team: NewTeam) -> None:
    team = new_team(3)
    assert team.run(sum_of_ranks, 10) == [33, 33, 33]
    assert team.run(dist.get_rank) == [0, 1, 2]
    assert team.leave(Leave(code=9)) == [9, 9, 9]


def test_every_fate_is_told_apart_and_nobody_stays(server: Server) -> None:
    with Team(server, 4) as team:
        team.start(four_fates)
        well, raised, gone = team.collect([0, 1, 2])
        (hang,) = team.collect([3], timeout_s=0.1)
        assert well == "well"
        assert isinstance(raised, Raised)
        assert raised.failure.kinds[0] == "ValueError"
        assert "as ordered" in raised.failure.trace
        assert (gone, hang) == (Gone(), Hang(0.1))
    assert all(not os.path.exists(f"/proc/{pid}") for pid in team.pids)

"""Ranks as threads: what the acts do, and that nobody hangs."""

from __future__ import annotations

import threading
import time

import pytest
import torch
from torch import Tensor

from thinwire.errors import PeerError
from thinwire.groups.base import FailureReport
from thinwire.groups.thread import ThreadGroup, run_ranks

SIZES = (1, 2, 3, 5, 8)


@pytest.mark.parametrize("size", SIZES)
def test_sum(size: int) -> None:
    def work(group: ThreadGroup) -> Tensor:
        x = torch.full((3,), float(group.rank + 1))
        group.all_reduce(x).wait()
        return x

    for result in run_ranks(size, work):
        assert result.tolist() == [size * (size + 1) / 2] * 3


def test_sums_go_in_rank_order() -> None:
    """(1e8 + 1) - 1e8 is 0 in float32, in any other order it is not."""
    values = [1e8, 1.0, -1e8]

    def work(group: ThreadGroup) -> float:
        x = torch.tensor([values[group.rank]])
        group.all_reduce(x).wait()
        return x.item()

    assert run_ranks(3, work) == [0.0, 0.0, 0.0]


def test_who_fails_behind_a_collective_does_not_undo_it() -> None:
    """A rank that is the first to leave and fails at once used to break it for those that still woke up."""

    def work(group: ThreadGroup) -> float:
        x = torch.ones(())
        group.all_reduce(x).wait()
        if group.rank == 0:
            group.abort()
        return x.item()

    for _ in range(200):
        assert run_ranks(8, work) == [8.0] * 8


@pytest.mark.parametrize("size", SIZES)
def test_max_of_int32_words(size: int) -> None:
    """Words are bit patterns of |x|: NaN beats Inf beats numbers, whichever rank has it."""
    numbers = torch.tensor([1.0, torch.inf, torch.nan]).view(torch.int32)

    def work(group: ThreadGroup) -> Tensor:
        words = torch.stack([numbers[(group.rank + k) % 3] for k in range(3)])
        group.all_reduce_max(words).wait()
        return words.view(torch.float32)

    for result in run_ranks(size, work):
        assert size < 3 or result.isnan().all()


@pytest.mark.parametrize("size", SIZES)
def test_swap_and_gather(size: int) -> None:
    def work(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        rows = torch.tensor([[10 * group.rank + to] for to in range(size)], dtype=torch.uint8)
        swapped = torch.empty_like(rows)
        group.all_to_all(rows, swapped).wait()
        gathered = torch.empty(size, 1, dtype=torch.uint8)
        group.all_gather(torch.tensor([group.rank], dtype=torch.uint8), gathered).wait()
        return swapped, gathered

    for rank, (swapped, gathered) in enumerate(run_ranks(size, work)):
        assert swapped.flatten().tolist() == [10 * source + rank for source in range(size)]
        assert gathered.flatten().tolist() == list(range(size))


def test_buffers_may_be_reused_at_once() -> None:
    """After an act returned no peer reads this rank's tensor any more."""

    def work(group: ThreadGroup) -> list[int]:
        seen, send, receive = [], torch.zeros(1, dtype=torch.uint8), torch.zeros(4, 1, dtype=torch.uint8)
        for step in range(50):
            send.fill_(step)
            group.all_gather(send, receive).wait()
            send.fill_(255)
            seen.append(int(receive.sum()))
        return seen

    for seen in run_ranks(4, work):
        assert seen == [4 * step for step in range(50)]


def test_a_rank_that_fails_ends_the_others() -> None:
    def work(group: ThreadGroup) -> None:
        if group.rank == 1:
            raise ZeroDivisionError("rank 1 is broken")
        group.all_reduce(torch.zeros(1)).wait()

    with pytest.raises(ZeroDivisionError, match="rank 1 is broken"):  # not the PeerErrors it caused
        run_ranks(3, work, timeout_s=3600)  # who waited for it would end this test by its own time limit


def test_a_rank_that_stays_away_is_noticed() -> None:
    groups = ThreadGroup.make(2, timeout_s=0.1)
    with pytest.raises(PeerError, match="left the exchange"):
        groups[0].all_reduce(torch.zeros(1))


def test_abort_wakes_those_who_wait() -> None:
    groups = ThreadGroup.make(2)
    timer = threading.Timer(0.05, groups[1].abort)
    timer.start()
    with pytest.raises(PeerError):
        groups[0].all_reduce(torch.zeros(1))
    timer.join()


def test_confessions_are_heard() -> None:
    groups = ThreadGroup.make(2)
    first, second = FailureReport("encode", "broken", True), FailureReport("travel", "peer gone", False)
    assert groups[0].report_failure(first) == {0: first}
    assert groups[1].report_failure(second) == {0: first, 1: second}


def test_results_come_in_rank_order() -> None:
    def work(group: ThreadGroup) -> int:
        time.sleep(0.01 * (3 - group.rank))
        return group.rank

    assert run_ranks(3, work) == [0, 1, 2]

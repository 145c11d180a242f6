"""However a script ends, its exit code is its own and nothing is written to the terminal."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from failing import BETWEEN_STEPS, Met, failure_of, in_backward_of, signalled
from launch import NewTeam, Team, Teams
from rank import Failure, Leave
from torch.nn.parallel import DistributedDataParallel
from training import fit, mlp, wrap

import thinwire as tw
from thinwire.groups.torch import hang_up

RAISED = "the victim has failed"  # a key of the store


# The gloo of some releases of torch prints this for every group, with and without thinwire.
CONNECTED = re.compile(r"\[Gloo\] Rank \d+ is connected to (\d+) peer ranks\. Expected .* is : \1\n")


def check_silent(team: Team, ranks: range | list[int]) -> None:
    for rank in ranks:
        assert CONNECTED.sub("", team.log(rank)) == ""


def train(close: bool, codec: str) -> None:
    it = wrap(mlp(), codec)
    fit(it.model, 3)
    if close:
        assert it.compressor is not None
        it.compressor.close()
        it.compressor.close()  # twice is no error


@pytest.mark.parametrize("destroy", [True, False], ids=["destroy", "no destroy"])
@pytest.mark.parametrize("close", [True, False], ids=["close", "no close"])
def test_after_training(new_team: NewTeam, close: bool, destroy: bool) -> None:
    team = new_team(2)
    team.run(train, close, "terngrad")
    assert team.leave(Leave(destroy)) == [0, 0]
    check_silent(team, range(2))


def come_late(victim: int) -> None:
    model = DistributedDataParallel(mlp())
    time.sleep(1.2 * (dist.get_rank() == victim))
    with tw.compress(model, "terngrad"):
        fit(model, 3)


def test_after_a_rank_came_late(new_team: NewTeam) -> None:
    """Others looked for it twice a second, and torch's store wrote two warnings each time."""
    team = new_team(2)
    team.run(come_late, 1)
    assert team.leave(Leave(True)) == [0, 0]
    check_silent(team, range(2))


def handed_over(static_graph: bool) -> bool:
    """Whether all buckets that go DDP's own way are handed over by the thread that trains."""
    threads: list[int] = []
    with wrap(mlp(), "auto", {"static_graph": static_graph}, quality="exact") as it:
        assert it.compressor is not None
        plain = it.compressor.queue.plain
        start = plain.start

        def noted(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
            future = start(bucket)
            future.then(lambda _: threads.append(threading.get_ident()))
            return future

        plain.start = noted  # type: ignore[method-assign]
        fit(it.model, 4)
    return len(threads) >= 4 and set(threads) == {threading.get_ident()}


def hang_up_late() -> None:
    group = dist.new_group()
    dist.destroy_process_group(group)
    hang_up(group)


def test_nothing_is_left_to_close_of_a_group_that_is_destroyed(new_team: NewTeam) -> None:
    """A process that ended in the middle of a job wrote a traceback where its groups had been destroyed."""
    new_team(1).run(hang_up_late)  # ranks would race: one connects while another one destroys


@pytest.mark.parametrize("static_graph", [False, True])
def test_nothing_of_python_hangs_on_threads_of_gloo(teams: Teams, static_graph: bool) -> None:
    """One that dropped a Python callback when the interpreter was gone took the process down (SIGABRT)."""
    assert teams(2).run(handed_over, static_graph) == [True, True]


@pytest.mark.parametrize("destroy", [True, False], ids=["destroy", "no destroy"])
def test_after_a_peer_died(new_team: NewTeam, destroy: bool) -> None:
    team = new_team(3)
    answers = team.answers(signalled, signal.SIGKILL, 0, BETWEEN_STEPS, "terngrad", {})
    assert all(isinstance(met, Met) for met in answers[1:])
    assert team.leave(Leave(destroy, code=7)) == [-signal.SIGKILL, 7, 7]
    check_silent(team, [1, 2])


def run_away(victim: int) -> Failure | None:
    """The victim's script fails in the backward pass, while its bucket waits for peers that are late."""
    it, store = wrap(mlp(), "terngrad"), dist.distributed_c10d._get_default_store()
    fit(it.model, 2)
    if dist.get_rank() != victim:
        store.wait([RAISED])
        return failure_of(lambda: fit(it.model, 1))
    in_backward_of(it.model.module, lambda *_: wait_and_raise(it.compressor))
    assert failure_of(lambda: fit(it.model, 1)).kinds[0] == "ZeroDivisionError"
    store.set(RAISED, "")
    return None


def wait_and_raise(compressor: Any) -> None:
    while compressor.queue.worker._idle.is_set():
        time.sleep(0.001)
    time.sleep(0.05)  # the worker thread is in the middle of a collective by now, and nobody joins it
    raise ZeroDivisionError("the user's own mistake")


def test_with_an_exchange_in_flight(new_team: NewTeam) -> None:
    team = new_team(3)
    team.start(run_away, 1)
    assert team.leave(Leave(destroy=False, code=5)) == [5, 5, 5]
    for failure in team.collect([0, 2]):
        assert failure.kinds[0] == "PeerError", failure.trace
        # Its model was collected, or its process had ended, before its peers came.
        why = re.search(r"rank 1 (takes part no more|closed the connection or died)", failure.text)
        assert why, failure.text
    check_silent(team, range(3))

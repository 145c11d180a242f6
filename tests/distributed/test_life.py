"""The life of a compressor: it gives up its threads and connections with its model, or on failure."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time

import torch.distributed as dist
from failing import failure_of
from launch import NewTeam, Teams
from rank import Failure
from torch.nn.parallel import DistributedDataParallel
from training import fit, mlp, wrap

import thinwire as tw

ROUNDS = 4
SOON_S = 120.0  # far above what a busy machine needs; what is never given up is still held then


def threads() -> int:
    return len(os.listdir("/proc/self/task"))


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def settled(holds: tuple[int, int]) -> tuple[int, int]:
    """Threads and file descriptors now, or as soon as there are no more than these."""
    deadline = time.monotonic() + SOON_S
    while time.monotonic() < deadline and (threads() > holds[0] or descriptors() > holds[1]):
        gc.collect()
        time.sleep(0.02)
    return threads(), descriptors()


def used() -> tuple[int, int]:
    """What is held after a first round: torch starts threads of its own in the first backward pass."""
    with wrap(mlp(), "terngrad") as it:
        fit(it.model, 1)
    gc.collect()
    return threads(), descriptors()


def forgotten() -> None:
    """A notebook's cell: a model is wrapped, compressed, trained and forgotten; nothing is closed."""
    it = wrap(mlp(), "terngrad")
    fit(it.model, 2)


def forgotten_but_reported() -> tw.Compressor:
    """The model is forgotten, the compressor is kept for its report."""
    it = wrap(mlp(), "terngrad")
    fit(it.model, 2)
    assert it.compressor is not None
    return it.compressor


def cells_run_again() -> tuple[tuple[int, int], tuple[int, int]]:
    before = used()
    for _ in range(ROUNDS):
        forgotten()
    return before, settled(before)


def test_a_compressor_dies_with_its_model(teams: Teams) -> None:
    for before, after in teams(2).run(cells_run_again):
        assert after[0] <= before[0]
        assert after[1] <= before[1]


def reports_kept() -> tuple[tuple[int, int], tuple[int, int], list[int], Failure]:
    before = used()
    kept = [forgotten_but_reported() for _ in range(ROUNDS)]
    after = settled(before)
    return before, after, [compressor.report().steps for compressor in kept], failure_of(kept[0].wait)


def test_a_kept_compressor_gives_up_its_connections_when_the_model_dies(teams: Teams) -> None:
    for before, after, steps, failure in teams(2).run(reports_kept):
        assert after[0] <= before[0]
        assert after[1] <= before[1]
        assert steps == [2] * ROUNDS
        assert "was closed" in failure.text


def refused(codec: str, route: str | None) -> None:
    """Ranks disagree (rank 1 wants another codec), or all make the same mistake; plain DDP goes on."""
    model = DistributedDataParallel(mlp())
    with contextlib.suppress(tw.ThinwireError):
        tw.compress(model, "terngrad" if dist.get_rank() == 1 else codec, route=route)
        raise AssertionError("it was not refused")
    fit(model, 1)


def refusals_survived(codec: str, route: str | None) -> tuple[tuple[int, int], tuple[int, int]]:
    before = used()
    for _ in range(ROUNDS):
        refused(codec, route)
    return before, settled(before)


def test_a_compress_that_fails_leaves_nothing_behind(teams: Teams) -> None:
    for codec, route in (("terngrad:clip=3", None), ("terngrad", "allreduce")):
        for before, after in teams(2).run(refusals_survived, codec, route):
            assert after[0] <= before[0]
            assert after[1] <= before[1]


def mistaken(victim: int) -> Failure:
    """One rank mistypes its codec: it is told, and nobody waits for it until the timeout."""
    codec = "terngard" if dist.get_rank() == victim else "terngrad"
    return failure_of(lambda: wrap(mlp(), codec))


def test_a_rank_that_cannot_start_is_named(teams: Teams) -> None:
    answers = teams(3).run(mistaken, 1)
    for rank, failure in enumerate(answers):
        assert '"terngard"' in failure.text
        assert failure.kinds[0] == ("CodecError" if rank == 1 else "PeerError")
        assert rank == 1 or "rank 1 could not start" in failure.text


def in_a_block() -> tuple[tuple[int, int], tuple[int, int], int, Failure]:
    before = used()
    model = DistributedDataParallel(mlp())
    with tw.compress(model, "terngrad") as compressor:
        fit(model, 2)
    after = settled(before)
    compressor.close()  # twice is no error
    return before, after, compressor.report().steps, failure_of(lambda: fit(model, 1))


def test_a_block_closes_at_its_end(teams: Teams) -> None:
    for before, after, steps, failure in teams(2).run(in_a_block):
        assert after[0] <= before[0]
        assert after[1] <= before[1]
        assert steps == 2
        assert "was closed" in failure.text


def block_fails(victim: int) -> Failure:
    """The script of one rank fails between two steps, and its process lives on."""
    model = DistributedDataParallel(mlp())

    def train() -> None:
        with tw.compress(model, "terngrad"):
            fit(model, 2)
            if dist.get_rank() == victim:
                raise ZeroDivisionError("the user's own mistake")
            fit(model, 2)

    return failure_of(train)


def test_a_block_that_fails_tells_the_others_why(new_team: NewTeam) -> None:
    answers = new_team(3).run(block_fails, 1)
    assert answers[1].kinds[0] == "ZeroDivisionError"
    for rank in (0, 2):
        assert answers[rank].kinds[0] == "PeerError"
        assert (
            'rank 1 failed in operation "training": ZeroDivisionError: the user\'s own' in answers[rank].text
        )


def barrier_fails(victim: int) -> Failure:
    """A collective of the script's own meets a dead rank."""
    model = DistributedDataParallel(mlp())

    def train() -> None:
        with tw.compress(model, "terngrad"):
            fit(model, 2)
            if dist.get_rank() == victim:
                os.kill(os.getpid(), signal.SIGKILL)
            dist.barrier()

    return failure_of(train)


def test_a_block_notes_who_is_to_blame_for_an_error_that_is_not_ours(new_team: NewTeam) -> None:
    answer = new_team(2).answers(barrier_fails, 1)[0]
    assert answer.kinds[0] != "PeerError"
    assert (
        'thinwire: exchange failed in operation "collective of DDP or of the script": rank 1' in answer.trace
    )


def leaves_early(leaver: int) -> Failure | None:
    it = wrap(mlp(), "terngrad")
    fit(it.model, 3)
    if dist.get_rank() == leaver:
        assert it.compressor is not None
        it.compressor.close()
        return None
    return failure_of(lambda: fit(it.model, 1))


def test_a_rank_that_leaves_early_is_named(new_team: NewTeam) -> None:
    answers = new_team(3).run(leaves_early, 2)
    for rank in (0, 1):
        assert answers[rank].kinds[0] == "PeerError"
        assert "rank 2 takes part no more" in answers[rank].text

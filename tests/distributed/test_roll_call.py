"""What every rank must call and one does not: an error on all ranks that names who did not, and no hang."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch.distributed as dist
from failing import failure_of
from launch import NewTeam
from rank import Failure
from torch import nn
from training import fit, mlp, normed, wrap

from thinwire.exchange.packing import opened

LONG_S = 600.0  # the group's timeout: whoever waits for it hangs
STEPS = 3
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "terngrad": ("terngrad", {}),
    "topk": ("topk:0.05", {}),
    "qsgd": ("qsgd:4", {}),
    "powersgd": ("powersgd:2", {}),
    "dgc": ("dgc:0.05,warmup=5", {}),
    "auto, in plain DDP's steps": ("auto", {}),
    "nodes": ("topk:0.05", {"hierarchy": 2}),
}
GATHER = "state_dict(gather=True)"


def gathered_by(callers: list[int], codec: str, options: dict[str, Any], build: Any) -> list[Failure]:
    """The callers gather a state, the others train on; what each meets, and what a step after it meets."""
    it = wrap(build(), codec, **options)
    assert it.compressor is not None
    compressor = it.compressor
    fit(it.model, STEPS)
    if dist.get_rank() in callers:
        first = failure_of(lambda: compressor.state_dict(gather=True))
    else:
        first = failure_of(lambda: fit(it.model, STEPS, STEPS))
    return [first, failure_of(lambda: fit(it.model, 1, 2 * STEPS))]


def check_named(answers: list[Any], *words: str) -> None:
    for answer in answers:
        assert isinstance(answer, list), answer
        for failure in answer:
            assert failure.kinds[0] == "PeerError", failure.trace
            for word in words:
                assert word in failure.text, failure.text


@pytest.mark.parametrize("run", RUNS)
def test_a_state_gathered_on_rank_0_only(new_team: NewTeam, run: str) -> None:
    answers = new_team(4, LONG_S).answers(gathered_by, [0], *RUNS[run], mlp)
    check_named(answers, f"rank 1, 2, 3 did not call {GATHER}, rank 0 did", "on every rank")


def test_a_state_that_one_rank_does_not_gather(new_team: NewTeam) -> None:
    answers = new_team(3, LONG_S).answers(gathered_by, [0, 1], *RUNS["topk"], mlp)
    check_named(answers, f"rank 2 did not call {GATHER}, rank 0, 1 did")


@pytest.mark.parametrize("run", ["topk", "auto, in plain DDP's steps"])
def test_where_ddp_waits_in_the_forward_pass_of_the_others(new_team: NewTeam, run: str) -> None:
    """DDP broadcasts the buffers of rank 0, which does not come: the others never get to an exchange."""
    answers = new_team(2, LONG_S).answers(gathered_by, [0], *RUNS[run], normed)
    check_named(answers, f"rank 1 did not call {GATHER}, rank 0 did")


def gathered_then_barrier() -> Failure:
    """How people save: one rank does, and the others wait for it at a barrier."""
    it = wrap(mlp(), "topk:0.05")
    assert it.compressor is not None
    compressor = it.compressor
    fit(it.model, STEPS)
    if dist.get_rank() == 0:
        return failure_of(lambda: compressor.state_dict(gather=True))
    return failure_of(dist.barrier)


def test_a_barrier_that_the_caller_does_not_reach(new_team: NewTeam) -> None:
    answers = new_team(3, LONG_S).answers(gathered_then_barrier)
    check_named([[answers[0]]], f"rank 1, 2 did not call {GATHER}, rank 0 did")
    for answer in answers[1:]:
        assert isinstance(answer, Failure), answer


def slow_to_come(seconds: float) -> list[int]:
    """Rank 1 comes late: that is no fault, however long it computes."""
    with wrap(mlp(), "topk:0.05") as it:
        assert it.compressor is not None
        fit(it.model, STEPS)
        if dist.get_rank() == 1:
            time.sleep(seconds)
        state = opened(it.compressor.state_dict(gather=True), dist.get_rank())
        fit(it.model, STEPS, STEPS)
        return [len(state["ranks"]), it.compressor.engine.step]


def test_a_rank_that_comes_late_is_waited_for(new_team: NewTeam) -> None:
    assert new_team(2, LONG_S).run(slow_to_come, 8.0) == [[2, 2 * STEPS]] * 2


def loaded_by(
    callers: list[int], codec: str, options: dict[str, Any], build: Callable[[], nn.Module] = mlp
) -> list[Failure]:
    """All save, some load what they saved, and all train on."""
    it = wrap(build(), codec, **options)
    assert it.compressor is not None
    fit(it.model, STEPS)
    state = it.compressor.state_dict()
    if dist.get_rank() in callers:
        it.compressor.load_state_dict(state)
    first = failure_of(lambda: fit(it.model, STEPS, STEPS))
    return [first, failure_of(lambda: fit(it.model, 1, 2 * STEPS))]


@pytest.mark.parametrize("run", RUNS)
def test_a_state_loaded_on_rank_0_only(new_team: NewTeam, run: str) -> None:
    answers = new_team(2 if run != "nodes" else 4, LONG_S).answers(loaded_by, [0], *RUNS[run])
    others = "1" if run != "nodes" else "1, 2, 3"
    check_named(answers, f"rank {others} did not call load_state_dict (of step {STEPS}), rank 0 did")


def loaded_of_different_steps() -> Failure:
    it = wrap(mlp(), "topk:0.05")
    assert it.compressor is not None
    fit(it.model, STEPS)
    state = it.compressor.state_dict()
    fit(it.model, STEPS, STEPS)
    it.compressor.load_state_dict(state if dist.get_rank() == 0 else it.compressor.state_dict())
    return failure_of(lambda: fit(it.model, 1))


def test_states_of_different_steps(new_team: NewTeam) -> None:
    for failure in new_team(2, LONG_S).run(loaded_of_different_steps):
        assert failure.kinds[0] == "PlanError", failure.trace
        assert "rank 0 load_state_dict (of step 3), rank 1 load_state_dict (of step 6)" in failure.text

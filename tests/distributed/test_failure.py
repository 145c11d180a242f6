"""Nothing hangs: a dead, stopped or failing rank is named on every other rank within the group's timeout."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import Any

import pytest
from failing import (
    BETWEEN_STEPS,
    IN_BACKWARD,
    Met,
    absent,
    broken_encode,
    failed_alone,
    late_for_an_absent,
    lost_while_connecting,
    signalled,
)
from launch import Gone, NewTeam, Server, Team
from rank import Failure, Leave
from training import mlp, normed

TIMEOUT_S = 15.0  # of the groups that must run into it; in others nobody has an answer that waited for it
UNUSED = {"find_unused_parameters": True}


def survivors_of(team: Team, victim: int) -> list[int]:
    return [rank for rank in range(team.world) if rank != victim]


def check_peer_error(failure: Failure, *words: str) -> None:
    assert failure.kinds[0] == "PeerError", failure.trace
    for word in words:
        assert word in failure.text


def check_met(met: Any, *words: str) -> None:
    """The fatal step and all calls after it raise the same PeerError."""
    assert isinstance(met, Met), met
    check_peer_error(met.first, "operation", *words)
    for failure in met.later:
        assert (failure.kinds, failure.text) == (met.first.kinds, met.first.text), failure.trace


@pytest.mark.parametrize(
    ("codec", "victim", "when"),
    [
        ("terngrad", 0, BETWEEN_STEPS),
        ("terngrad", 2, IN_BACKWARD),
        ("dense", 0, IN_BACKWARD),
        ("dense", 2, BETWEEN_STEPS),
    ],
)
def test_a_killed_rank_is_named(new_team: NewTeam, codec: str, victim: int, when: str) -> None:
    """Rank 0 keeps the store; with 4 ranks in a ring one of them has no connection to the victim in use."""
    team = new_team(4)
    answers = team.answers(signalled, signal.SIGKILL, victim, when, codec, {})
    assert answers[victim] == Gone()
    for rank in survivors_of(team, victim):
        check_met(answers[rank], f"rank {victim} closed the connection or died")


def test_a_rank_that_failed_waits_for_nobody_in_its_next_forward_pass(new_team: NewTeam) -> None:
    """DDP would broadcast the buffers of rank 0 there, which does not come."""
    _, met = new_team(2).answers(failed_alone, 1)
    assert isinstance(met, Failure), met
    assert "the disk is full" in met.text


IN_FORWARD = {
    "second step, when DDP rebuilds its buckets": (1, mlp),
    "buffers, which DDP broadcasts": (3, normed),
}


@pytest.mark.parametrize(("victim", "what"), list(zip([0, 2], IN_FORWARD, strict=True)))
def test_a_dead_rank_that_ddp_meets_first_is_named(new_team: NewTeam, victim: int, what: str) -> None:
    """DDP's own collectives raise in the forward pass; a peer that waits in one for another survivor too."""
    team = new_team(4)
    fatal_step, build = IN_FORWARD[what]
    answers = team.answers(
        signalled, signal.SIGKILL, victim, BETWEEN_STEPS, "terngrad", {}, fatal_step, build
    )
    for rank in survivors_of(team, victim):
        check_met(answers[rank], f"rank {victim} closed the connection or died")


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_dies_while_connecting_is_named(new_team: NewTeam, victim: int) -> None:
    team = new_team(3)
    answers = team.answers(lost_while_connecting, victim)
    for rank in survivors_of(team, victim):
        check_peer_error(answers[rank], f"rank {victim} closed the connection or died")


def test_a_dead_rank_is_named_in_the_first_step_of_a_static_graph(new_team: NewTeam) -> None:
    """There DDP waits for a collective of its own before any callback of ours."""
    team = new_team(3)
    answers = team.answers(
        signalled, signal.SIGKILL, 1, IN_BACKWARD, "terngrad", {"static_graph": True}, 0, mlp
    )
    for rank in survivors_of(team, 1):
        check_met(answers[rank], "rank 1 closed the connection or died")


def check_met_with_unused(met: Any, *words: str) -> None:
    """DDP has a collective of its own at the end of the backward pass; after ours fails it cannot go on."""
    assert isinstance(met, Met), met
    check_peer_error(met.first, "operation", *words)
    assert all("RuntimeError" in failure.kinds for failure in met.later)


def test_a_killed_rank_is_named_with_unused_parameters(new_team: NewTeam) -> None:
    team = new_team(3)
    answers = team.answers(signalled, signal.SIGKILL, 1, IN_BACKWARD, "terngrad", UNUSED)
    for rank in survivors_of(team, 1):
        check_met_with_unused(answers[rank], "rank 1 closed the connection or died")


@pytest.mark.parametrize(("codec", "victim"), [("terngrad", 0), ("dense", 1)])
def test_an_error_of_one_rank_is_raised_there_and_named_elsewhere(
    new_team: NewTeam, codec: str, victim: int
) -> None:
    team = new_team(3)
    answers = team.answers(broken_encode, victim, codec)
    for rank, met in enumerate(answers):
        assert isinstance(met, Met), met
        if rank != victim:
            check_met(
                met, f'rank {victim} failed in operation "encode"', "ZeroDivisionError", "in a funny way"
            )
            continue
        for failure in (met.first, *met.later):
            assert failure.kinds[0] == "ZeroDivisionError", failure.trace
            assert "in a funny way" in failure.text


STOPPED: dict[str, tuple[int, str, dict[str, Any]]] = {
    "rank 0, which keeps the store": (0, BETWEEN_STEPS, {}),
    "rank 1 in its backward pass": (1, IN_BACKWARD, {}),
    "rank 2 with unused parameters": (2, BETWEEN_STEPS, UNUSED),
}


@pytest.fixture(scope="module", autouse=True)
def slow_teams(server: Server) -> Iterator[dict[str, Team]]:
    """The scenarios that must run into a timeout, all at the same time, and behind the other tests."""
    with contextlib.ExitStack() as stack:
        teams = {}
        for name, (victim, when, ddp) in STOPPED.items():
            teams[name] = stack.enter_context(Team(server, 3, TIMEOUT_S))
            teams[name].start(signalled, signal.SIGSTOP, victim, when, "terngrad", ddp)
        teams["absent"] = stack.enter_context(Team(server, 3, TIMEOUT_S))
        teams["absent"].start(absent, 1)
        teams["late"] = stack.enter_context(Team(server, 3, TIMEOUT_S))
        teams["late"].start(late_for_an_absent, 2, 1, TIMEOUT_S / 3)
        teams["late"].dismiss(Leave(destroy=False))
        yield teams


@pytest.mark.parametrize("name", STOPPED)
def test_a_stopped_rank_is_named_within_the_timeout(slow_teams: dict[str, Team], name: str) -> None:
    victim, _, ddp = STOPPED[name]
    team = slow_teams[name]
    check = check_met_with_unused if ddp == UNUSED else check_met
    for met in team.collect(survivors_of(team, victim)):
        check(met, f"no sign of life from rank {victim};")


def test_a_rank_that_does_not_compress(slow_teams: dict[str, Team]) -> None:
    first, none, second = slow_teams["absent"].collect()
    assert none is None
    for failure in (first, second):
        check_peer_error(failure, "rank 1 did not call compress", "0, 1, 2")


def test_who_came_late_is_told_who_is_missing_before_the_store_goes(slow_teams: dict[str, Team]) -> None:
    """Rank 0 keeps the store, gave up first and has left: rank 1 said that rank 0 was to blame."""
    for failure in slow_teams["late"].collect([0, 1]):
        check_peer_error(failure, "rank 2 did not call compress")

"""Teams of ranks: one fork server a session, one team a world size for most tests, new ones for failures."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from launch import TIMEOUT_S, NewTeam, Server, Team, Teams


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with Server() as running:
        yield running


@pytest.fixture(scope="session")
def teams(server: Server) -> Iterator[Teams]:
    """A team by world size, used by many tests; a test that breaks its team must use `new_team`."""
    with contextlib.ExitStack() as stack:
        made: dict[int, Team] = {}

        def team_of(world: int) -> Team:
            team = made.get(world)
            if team is None or team.broken:
                team = made[world] = stack.enter_context(Team(server, world))
            return team

        yield team_of


@pytest.fixture
def new_team(server: Server) -> Iterator[NewTeam]:
    """Teams of the test's own, which it may kill, stop or let end."""
    with contextlib.ExitStack() as stack:
        yield lambda world, timeout_s=TIMEOUT_S: stack.enter_context(Team(server, world, timeout_s))

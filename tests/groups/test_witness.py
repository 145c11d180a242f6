"""The witness: words are heard after their rank ended, who ends without one is gone, strangers stay out."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from thinwire.groups import witness
from thinwire.groups.base import LEFT, UNREACHED, FailureReport
from thinwire.groups.witness import Listener, Witness

SAW = FailureReport("travel", "RuntimeError: connection reset \N{BEACH WITH UMBRELLA}\n", own=False)
WAITED = FailureReport("node", "RuntimeError: Timed out waiting 8000ms for recv operation", own=False)
MINE = FailureReport("encode", "ValueError: no", own=True)
LONG_S = 120.0  # for who comes: far above what a busy machine needs
PATIENCE_S = 0.2  # for who says nothing


def meet(ranks: list[int], size: int, patience_s: float = PATIENCE_S) -> list[Witness]:
    """Witnesses of these ranks; others of the world never come."""
    doors = [Listener("127.0.0.1") for _ in range(size)]
    peer_infos = [listener.peer_info() for listener in doors]
    made: dict[int, Witness] = {}

    def come(rank: int) -> None:
        made[rank] = doors[rank].witness(rank, peer_infos, patience_s)

    for rank in set(range(size)) - set(ranks):
        doors[rank].close()
    threads = [threading.Thread(target=come, args=(rank,)) for rank in ranks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for listener in doors:
        listener.close()
    return [made[rank] for rank in ranks]


@pytest.fixture
def three() -> Iterator[list[Witness]]:
    witnesses = meet([0, 1, 2], 3, LONG_S)
    for one in witnesses:
        one.patience_s = PATIENCE_S
    yield witnesses
    for one in witnesses:
        one.close()


def test_who_ended_without_a_word_is_gone_and_who_said_something_is_heard(three: list[Witness]) -> None:
    three[1].tell(SAW)
    three[1].close()
    three[2].close()
    assert three[0].trade(SAW) == {0: SAW, 1: SAW, 2: None}


def test_who_says_nothing_is_missing(three: list[Witness]) -> None:
    three[1].tell(SAW)
    assert three[0].trade(SAW) == {0: SAW, 1: SAW}


def test_the_first_word_counts(three: list[Witness]) -> None:
    three[1].tell(MINE)
    three[1].tell(FailureReport(LEFT, "closed", own=True))
    three[2].tell(SAW)
    assert three[0].trade(SAW) == {0: SAW, 1: MINE, 2: SAW}
    assert three[2].trade(SAW) == {0: SAW, 1: MINE, 2: SAW}  # what rank 0 said in its swap waits here


def test_a_rank_that_left_before_a_timeout_does_not_cut_short_what_others_have_to_say(
    three: list[Witness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It had finished, and a peer that stopped is to blame: the silent one is known when all others spoke."""
    monkeypatch.setattr(witness, "GRACE_S", 0.01)
    three[0].patience_s = LONG_S
    left = FailureReport(LEFT, "closed", own=True)
    three[1].tell(left)
    late = threading.Timer(0.3, three[2].tell, [SAW])
    late.start()
    assert three[0].trade(WAITED) == {0: WAITED, 1: left, 2: SAW}
    late.join()


def test_who_ended_is_known_without_waiting(three: list[Witness]) -> None:
    assert three[0].ended() == {}
    three[2].close()
    three[1].tell(MINE)
    assert three[0].ended() == {1: MINE, 2: None}


def test_a_rank_that_was_never_reached_is_not_waited_for() -> None:
    first, third = meet([0, 2], 3)
    assert first.trade(SAW)[1] is UNREACHED
    assert third.trade(SAW)[1] is UNREACHED
    first.close()
    third.close()


def test_strangers_are_not_let_in() -> None:
    listener = Listener("127.0.0.1")
    peer_info = listener.peer_info()
    with socket.create_connection(("127.0.0.1", peer_info["port"])) as stranger:
        stranger.sendall(b"let me in 1\n")
        made = listener.witness(0, [peer_info, peer_info], PATIENCE_S)
        assert made.trade(SAW) == {0: SAW, 1: UNREACHED}
    made.close()
    listener.close()

"""The pair in memory: messages, sizes, counters, flights."""

from __future__ import annotations

import numpy as np
import pytest

from thinwire.errors import LinkError
from thinwire_private.link.channel import framed_bytes, memory_pair


def test_messages_arrive_in_order_and_are_counted() -> None:
    ours, theirs = memory_pair()
    ours.send(b"one")
    ours.send(np.arange(4, dtype=np.uint16).data)
    assert bytes(theirs.receive(3)) == b"one"
    assert np.frombuffer(theirs.receive(8), np.uint16).tolist() == [0, 1, 2, 3]
    theirs.send(b"back")
    ours.receive(4)
    assert ours.counters.sent_bytes == framed_bytes(3) + framed_bytes(8) == 3 + 8 + 24
    assert ours.counters.sent_bytes == theirs.counters.received_bytes
    assert (ours.counters.flights, theirs.counters.flights) == (2, 2)
    assert ours.counters.total_bytes == ours.counters.sent_payload_bytes + 4 + 3 * 12


def test_an_empty_message_is_nothing() -> None:
    ours, theirs = memory_pair()
    ours.send(b"")
    assert bytes(theirs.receive(0)) == b""
    assert ours.counters.total_bytes == theirs.counters.flights == 0


def test_a_difference_of_counters_is_one_operator() -> None:
    ours, _ = memory_pair()
    ours.send(b"before")
    start = ours.counters
    ours.send(b"x" * 100)
    assert (ours.counters - start).sent_bytes == 112


def test_another_size_is_refused() -> None:
    ours, theirs = memory_pair()
    ours.send(b"1234")
    with pytest.raises(LinkError, match="sent 4 bytes where 5 were due"):
        theirs.receive(5)


def test_a_message_above_the_limit_is_refused_before_it_is_waited_for() -> None:
    ours, _ = memory_pair()
    ours.max_message_bytes = 10
    with pytest.raises(LinkError, match="above the limit of 10"):
        ours.receive(11)


def test_a_silent_peer_is_noticed() -> None:
    ours, _ = memory_pair(timeout_s=0.01)
    with pytest.raises(LinkError, match=r"nothing for 0\.01 s"):
        ours.receive(1)


def test_an_abort_reaches_the_peer_with_its_reason() -> None:
    ours, theirs = memory_pair()
    ours.abort("no more")
    for _ in range(2):
        with pytest.raises(LinkError, match="the peer stopped: no more"):
            theirs.receive(1)

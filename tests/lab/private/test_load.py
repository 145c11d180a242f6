"""A small load: clients killed in the middle of queries leave nothing behind."""

from __future__ import annotations

from thinwire_lab.private.load import load_once
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build, with_random_weights


def test_nothing_is_lost_when_clients_are_killed() -> None:
    row = load_once(with_random_weights(build("digits", read_bits("W2A4"))), clients=3, queries=9, every=3)
    assert (row["answered"], row["wrong"], row["killed"], row["failures"]) == (9, 0, 3, 0)
    assert (row["sessions_left"], row["memory_reserved_left"], row["healthy"]) == (0, 0, True)

"""The short form of the fuzz: damaged messages into every reader of bytes, and no thread left."""

from __future__ import annotations

import random

import pytest

from thinwire_lab.private.fuzz import SHARES, VICTIMS, fuzz, mutate, threads_left

CASES = {"session": 12, "rlwe": 60}


@pytest.mark.parametrize("victim", VICTIMS)
def test_damaged_bytes_are_refused_and_never_crash_or_hang(victim: str) -> None:
    tally = fuzz(victim, CASES.get(victim, 150), seed=1)
    assert sum(tally.refused.values()) + tally.accepted == tally.cases
    assert tally.refused
    assert not list(threads_left())


def test_every_victim_has_its_share() -> None:
    assert SHARES.keys() == VICTIMS.keys()
    assert sum(SHARES.values()) == pytest.approx(1)


def test_a_crash_is_told_with_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    def victim(dice: random.Random) -> None:
        raise IndexError("out of range")

    monkeypatch.setattr("thinwire_lab.private.fuzz.VICTIMS", {"frames": victim})
    with pytest.raises(AssertionError, match="case 0 of 'frames', seed 7"):
        fuzz("frames", 1, seed=7)


def test_mutations_differ_from_what_they_damage() -> None:
    data = bytes(range(64))
    made = {mutate(data, random.Random(seed)) for seed in range(100)}
    assert len(made) > 90
    assert {len(one) < 64 for one in made} == {True, False}

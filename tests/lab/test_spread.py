"""Spreads: the middle of some measurements and how far they lie from it."""

from __future__ import annotations

import pytest

from thinwire_lab.spread import Spread, ratios


def test_of_several_values() -> None:
    spread = Spread.of([10.0, 1.0, 3.0, 2.0, 4.0])
    assert (spread.median, spread.mean) == (3.0, 4.0)
    assert spread.quartiles == (2.0, 4.0)
    assert spread.deviation == pytest.approx(12.5**0.5)


def test_a_single_value_has_no_spread() -> None:
    spread = Spread.of([7.0])
    assert (spread.median, spread.quartiles, spread.mean, spread.deviation) == (7.0, (7.0, 7.0), 7.0, 0.0)


def test_ratios_are_taken_turn_by_turn() -> None:
    found = ratios({"ddp": [1.0, 10.0], "fast": [0.5, 2.0]}, base="ddp")
    assert found["ddp"] == Spread.of([1.0, 1.0])
    assert found["fast"] == Spread.of([2.0, 5.0])
    with pytest.raises(ValueError, match="shorter"):
        ratios({"ddp": [1.0, 10.0], "fast": [0.5]}, base="ddp")

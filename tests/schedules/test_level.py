"""Strength: what a part of it means for every link that has one, and for chains."""

from __future__ import annotations

import pytest

import thinwire as tw
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Spec

SHARES = (1.0, 0.75, 0.5, 0.25, 1 / 16, 0.0)
STRONG = (
    "topk:0.01",
    "dgc:0.01",
    "qsgd:2",
    "fft:0.97",
    "rangefloat:4",
    "clip >> qsgd:3",
    "dct >> topk:0.15 >> rangefloat:10",
)


@pytest.mark.parametrize("text", STRONG)
def test_less_level_is_more_bytes(text: str) -> None:
    codec = tw.parse(text)
    assert codec.adjustable
    assert codec.at_level(1.0) is codec
    model = Model((Spec("a", (300, 70)),))
    sizes = [
        tw.Plan.of(Policy.of(codec, ()), model, 2).at_level(level).step_bytes(step=10**6) for level in SHARES
    ]
    assert sizes[:-1] == sorted(sizes[:-1]), "but at compression level 0: what is all there needs no places"
    assert sizes[-1] > 1.5 * sizes[0]


@pytest.mark.parametrize("text", STRONG)
def test_name_memory_route_and_merge_stay(text: str) -> None:
    """The memory of a plan stays, even where the gentler codec alone would not ask for it."""
    plan = tw.Plan.of(Policy.of(text, ()), Model((Spec("a", (300, 70)),)), 2)
    (entry,) = plan.entries
    for level in SHARES:
        (at_level,) = plan.at_level(level).entries
        assert (str(at_level.codec), at_level.codec.merge) == (text, entry.codec.merge)
        assert (at_level.feedback, at_level.route) == (entry.feedback, entry.route)


def test_theta_is_multiplied() -> None:
    assert tw.parse("topk:0.2").at_level(0.5).theta == pytest.approx(0.4)
    assert tw.parse("fft:0.9").at_level(0.25).theta == pytest.approx(0.225)
    assert tw.parse("dgc:0.001").at_level(0.0).theta == 0
    assert tw.parse("qsgd:4").theta is None


def test_bits_grow() -> None:
    def bits(text: str) -> list[str]:
        return [tw.parse(text).at_level(level).canonical for level in (0.5, 0.0)]

    assert bits("qsgd:3") == ["QSGD(bits=6)", "QSGD(bits=8)"]
    assert bits("rangefloat:7,mantissa=3") == [
        "RangeFloat(bits=14,mantissa=10)",
        "RangeFloat(bits=16,mantissa=12)",
    ]


def test_where_something_is_selected_the_rest_stays() -> None:
    for text in ("topk:0.1 >> rangefloat:10", "topk:0.1 >> qsgd:4,scales=own", "fft:0.9"):
        codec = tw.parse(text)
        assert codec.at_level(0.0).coder == codec.coder
        assert codec.at_level(0.5).stages == codec.stages
        assert codec.at_level(0.5).selecting != codec.selecting


@pytest.mark.parametrize("text", ["terngrad", "sign", "gradiveq", "powersgd", "bf16", "dense", "topk:k=3"])
def test_without_level_nothing_changes(text: str) -> None:
    codec = tw.parse(text)
    assert not codec.adjustable
    assert codec.at_level(0.0) is codec

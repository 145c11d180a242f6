"""Schedules, diminish, and the texts that ask for controls."""

from __future__ import annotations

import math

import pytest

import thinwire as tw
from thinwire.errors import CodecError, PlanError
from thinwire.schedules.base import Seen
from thinwire.schedules.fixed import GRID, THEOREM, Diminish, Epochs, Followed, Steps
from thinwire.schedules.guard import Guard
from thinwire.schedules.table import check_schedule, make_schedule, schedule_text


def test_texts_and_back() -> None:
    assert make_schedule(None) is make_schedule("constant") is None
    assert make_schedule("guard:patience=7, mode=max") == Guard(patience=7, mode="max")
    assert make_schedule("diminish") == Diminish()
    assert make_schedule("diminish:2.5") == make_schedule("diminish:L=2.5") == Diminish(2.5)
    assert make_schedule("steps:0=1/100=0.5") == Steps(((0.0, 1.0), (100.0, 0.5)))
    for text in (
        "guard",
        "guard:window=3,gain=0.1",
        "diminish:L=0.1",
        "diminish:L=theorem",
        "epochs:points=0=1/2.5=0.3,of=theta",
    ):
        assert schedule_text(make_schedule(text)) == text
        assert make_schedule(schedule_text(make_schedule(text))) == make_schedule(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "gard",
            'no schedule "gard": did you mean "guard"? known are constant, steps, epochs, diminish, guard',
        ),
        ("guard:pat=3", 'no option "pat"'),
        ("guard:3", "takes no bare value"),
        ("guard:window=x", 'window="x" does not fit'),
        ("diminish:0", "a positive number"),
        ("diminish:nan", "a positive number"),
        ("steps", "do not fit: moments and values from 0 on"),
        ("steps:5=1", "from 0 on"),
        ("steps:0=1/5=0.5/5=0.2", "from 0 on"),
        ("steps:0=1/9=0.5/5=0.2", "from 0 on"),
        ("epochs:0=1.5", "1.5 at 0 must be at least 0 and at most 1"),
        ("epochs:0=nan", "must be at least 0 and at most 1"),
        ("epochs:0=x", "does not fit"),
    ],
)
def test_wrong_texts(text: str, words: str) -> None:
    with pytest.raises(tw.ThinwireError) as caught:
        make_schedule(text)
    assert words in str(caught.value)


def test_steps() -> None:
    schedule = Steps(((0.0, 1.0), (10.0, 0.5), (20.0, 0.0)))
    state, levels = schedule.begin(None), []
    for step in (0, 9, 10, 19, 20, 1000):
        state, _ = schedule.decide(state, Seen(), step, None)
        levels.append(state.compression_level)
    assert levels == [1.0, 1.0, 0.5, 0.5, 0.0, 0.0]
    assert schedule.needs is None


def test_epochs_in_units_of_theta() -> None:
    schedule = Epochs(((0.0, 0.95), (5.0, 0.5), (8.0, 0.0)), of="theta")
    theta = 0.95
    assert schedule.begin(theta).compression_level * theta == 0.95
    state, _ = schedule.decide(schedule.begin(theta), Seen(), 7, theta)
    assert state == schedule.begin(theta), "nobody said how far it is"
    for epoch, expected in ((4.9, 0.95), (5, 0.5), (8, 0.0), (3, 0.95)):
        state, why = schedule.decide(state, Seen(epoch=epoch), 7, theta)
        assert state.compression_level * theta == pytest.approx(expected)
        assert f"epoch {epoch:g}" in why


def test_theta_of_a_schedule_must_fit_the_codec() -> None:
    schedule = Epochs(((0.0, 0.95),), of="theta")
    with pytest.raises(PlanError, match=r"0\.95 is more than the codec's 0\.9"):
        check_schedule(schedule, [tw.parse("topk:0.1")])
    with pytest.raises(PlanError, match="same part of all tensors"):
        check_schedule(schedule, [tw.parse("qsgd:4")])
    with pytest.raises(PlanError, match="same part of all tensors"):
        check_schedule(schedule, [tw.parse("topk:0.01"), tw.parse("topk:0.02")])
    assert check_schedule(schedule, [tw.parse("dense"), tw.parse("topk:0.05")]) == 0.95


def test_codecs_without_a_level_are_refused() -> None:
    for text in (
        "terngrad",
        "sign",
        "gradiveq",
        "powersgd",
        "dense",
        "bf16",
        "topk:k=5",
        "topk:k=5 >> qsgd:4,scales=own",
    ):
        with pytest.raises(CodecError, match="has no compression level to lower"):
            check_schedule(Guard(), [tw.parse(text)])
        check_schedule(None, [tw.parse(text)])


@pytest.mark.parametrize("theta", [0.2, 0.3, 0.9, 0.999])
def test_diminish_meets_the_theorem_if_asked_to(theta: float) -> None:
    """th^2 = theta <= L eta and L eta <= 1/4, with L = 1 / (4 highest learning rate); L=auto does not."""
    schedule = make_schedule("diminish:theorem")
    assert schedule is not None
    state = schedule.begin(theta)
    for step, lr in enumerate((0.4, 0.4, 0.3, 0.11, 0.02, 0.0)):
        state, _ = schedule.decide(state, Seen(lr=lr), step, theta)
        smoothness = 1 / (4 * 0.4)
        assert state.compression_level * theta <= smoothness * lr <= 0.25
        allowed = min(theta, smoothness * lr)
        assert state.compression_level * theta >= allowed - theta / GRID, "as strong as that allows"
    automatic = Diminish().decide(Followed(), Seen(lr=0.4), 0, theta)[0]
    assert (automatic.compression_level * theta <= 0.25) == (theta <= 0.25)


def test_diminish_says_when_a_number_leaves_the_theorem() -> None:
    assert "above the 1/4" in Diminish(4.0).decide(Followed(), Seen(lr=0.1), 0, 0.9)[1]
    assert "above" not in Diminish(2.5).decide(Followed(), Seen(lr=0.1), 0, 0.9)[1]
    with pytest.raises(PlanError, match="L=theorem needs a codec that drops the same part"):
        Diminish(THEOREM).check(None)


def test_diminish_follows_the_learning_rate_down() -> None:
    schedule, state, levels = Diminish(), Followed(), []
    for lr in (0.1, 0.2, 0.4, 0.4, 0.2, 0.199, 0.01, 0.0):
        state, _ = schedule.decide(state, Seen(lr=lr), 0, None)
        levels.append(state.compression_level)
    assert levels == [1, 1, 1, 1, 0.5, 15 / 32, 0, 0], "up to the top it is as strong as it was asked for"


@pytest.mark.parametrize("given", [0.5, 2.0, 20.0])
def test_theta_is_never_above_the_bound(given: float) -> None:
    """theta_t <= L eta_t, on a grid, and not further below it than the grid is wide."""
    schedule, theta = Diminish(given), 0.97
    for k in range(1000):
        lr = k / 1000
        level = schedule.decide(Followed(), Seen(lr=lr), 0, theta)[0].compression_level
        assert (level * GRID).is_integer()
        assert level * theta <= given * lr + 1e-12
        assert level * theta > min(theta, given * lr) - theta / GRID - 1e-12


def test_a_given_l_needs_theta() -> None:
    with pytest.raises(PlanError, match="L=2 needs a codec"):
        check_schedule(Diminish(2.0), [tw.parse("qsgd:4")])
    check_schedule(Diminish(), [tw.parse("qsgd:4")])
    assert math.isinf(Diminish().L)

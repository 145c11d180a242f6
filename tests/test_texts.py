"""Texts that need no torch: the names of the tables, options as they are read and shown, rates."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire import texts
from thinwire.errors import CodecError, LabError, ThinwireError
from thinwire.feedback.table import FEEDBACKS
from thinwire.routes import ROUTES
from thinwire.schedules.table import CONSTANT, SCHEDULES
from thinwire.texts import (
    number_or_off,
    one_of,
    option,
    parse_rate,
    read_options,
    show_number_or_off,
    show_options,
)
from thinwire_lab.run.recipe import read_codec_choice


def test_they_are_the_tables() -> None:
    assert tuple(FEEDBACKS) == texts.FEEDBACKS
    assert tuple(ROUTES) == texts.ROUTES
    assert (CONSTANT, *SCHEDULES) == texts.SCHEDULES


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("terngard", 'no codec "terngard": did you mean "terngrad"?'),
        ("gradiveq:8 >> qsdg:4", 'no codec "qsdg": did you mean "qsgd"?'),
        ("topk:0.1 @ feedback=resid", 'no feedback "resid": did you mean "residual"?'),
        ("topk:0.1 @ schedule=gard", 'no schedule "gard": did you mean "guard"?'),
        ("topk:0.1 @ route=allgathr", 'no route "allgathr": did you mean "allgather"?'),
        ("ddp-fp61", 'no codec "ddp-fp61"'),
    ],
)
def test_misspelt_names_are_refused_with_the_right_one(text: str, sentence: str) -> None:
    with pytest.raises(ThinwireError) as caught:
        read_codec_choice(text).check_names()
    assert sentence in str(caught.value)


def test_right_names_pass_whatever_their_options() -> None:
    for text in (
        "terngrad:clip=wrong",
        "ddp",
        "ddp-fp16",
        "ddp-powersgd:4",
        "dct >> topk:0.1 @ schedule=guard:x=1",
    ):
        read_codec_choice(text).check_names()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("auto @ feedback=residual", "auto chooses feedback, route and schedule"),
        ("terngrad @ quality=safe", "quality=safe says what auto may take, and terngrad is no auto"),
    ],
)
def test_auto_takes_a_quality_and_nobody_else_does(text: str, sentence: str) -> None:
    with pytest.raises(ThinwireError) as caught:
        read_codec_choice(text)
    assert sentence in str(caught.value)


def test_auto_is_a_name() -> None:
    read_codec_choice("auto @ quality=safe").check_names()


@dataclass(frozen=True)
class Link:
    c: float = option(2.5, number_or_off, "a number", show_number_or_off)
    word: str = option("x", one_of("x", "y"), '"x" or "y"')


@given(st.floats(min_value=0, exclude_min=True))
def test_numbers_survive_to_the_last_digit(value: float) -> None:
    assert number_or_off(show_number_or_off(value)) == value


def test_off_is_infinity() -> None:
    assert number_or_off("off") == math.inf
    assert show_number_or_off(math.inf) == "off"


def test_only_what_differs_from_the_default_is_shown() -> None:
    assert show_options(Link()) == ""
    assert show_options(Link(c=3.0, word="y")) == "c=3.0,word=y"


def test_reading() -> None:
    assert read_options(Link, {"c": "3", "word": "y"}, "link") == {"c": 3.0, "word": "y"}
    with pytest.raises(CodecError, match='link has no option "d": it takes c, word'):
        read_options(Link, {"d": "3"}, "link")
    with pytest.raises(CodecError, match='link: word="z" does not fit: "x" or "y"'):
        read_options(Link, {"word": "z"}, "link")


@pytest.mark.parametrize(
    ("text", "bits"),
    [
        ("1gbit", 1e9),
        ("1.5gbit", 1.5e9),
        ("100mbit", 1e8),
        ("500kbit", 5e5),
        ("64bit", 64.0),
        (" 10 Mbit/s ", 1e7),
    ],
)
def test_a_rate_is_a_number_and_a_unit(text: str, bits: float) -> None:
    assert parse_rate(text) == pytest.approx(bits)


@pytest.mark.parametrize(
    "text", ["", "fast", "1gb", "1gbps", "100", "0mbit", "-1mbit", "1e3mbit", "nanmbit", "1 g bit"]
)
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(LabError) as caught:
        parse_rate(text)
    assert f'"{text}"' in str(caught.value)
    assert "100mbit" in str(caught.value)

"""Options: what is read is what is shown."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire.errors import CodecError
from thinwire.texts import number_or_off, one_of, option, read_options, show_number_or_off, show_options


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

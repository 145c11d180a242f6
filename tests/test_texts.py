"""The names that are known without torch are those of the tables."""

from __future__ import annotations

import pytest

from thinwire import texts as names
from thinwire.errors import ThinwireError
from thinwire.feedback.table import MEMORIES
from thinwire.routes import ROUTES
from thinwire.schedules.table import CONSTANT, CONTROLS
from thinwire_lab.run.recipe import read_codec_choice


def test_they_are_the_tables() -> None:
    assert tuple(MEMORIES) == names.MEMORIES
    assert tuple(ROUTES) == names.ROUTES
    assert (CONSTANT, *CONTROLS) == names.CONTROLS


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("terngard", 'no codec "terngard": did you mean "terngrad"?'),
        ("gradiveq:8 >> qsdg:4", 'no codec "qsdg": did you mean "qsgd"?'),
        ("topk:0.1 @ memory=resid", 'no memory "resid": did you mean "residual"?'),
        ("topk:0.1 @ control=gard", 'no control "gard": did you mean "guard"?'),
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
        "dct >> topk:0.1 @ control=guard:x=1",
    ):
        read_codec_choice(text).check_names()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("auto @ memory=residual", "auto chooses memory, route and control"),
        ("terngrad @ quality=safe", "quality=safe says what auto may take, and terngrad is no auto"),
    ],
)
def test_auto_takes_a_quality_and_nobody_else_does(text: str, sentence: str) -> None:
    with pytest.raises(ThinwireError) as caught:
        read_codec_choice(text)
    assert sentence in str(caught.value)


def test_auto_is_a_name() -> None:
    read_codec_choice("auto @ quality=safe").check_names()

"""One rank has 1 thread, the other 4, and layers have odd sizes: replicas stay equal, bit by bit."""

from __future__ import annotations

import pytest
from launch import Teams
from unequal import CODECS, replicas_are_equal

from thinwire.codecs.catalog import CATALOG


@pytest.mark.parametrize("name", ["powersgd", "gradiveq", "fft", "dct"])
def test_replicas_stay_equal(teams: Teams, name: str) -> None:
    """Codecs that were made of library calls; the long form in unequal.py takes all of them, 200 times."""
    assert replicas_are_equal(teams(2), CODECS[name], run=0)


def test_the_long_form_leaves_no_codec_out() -> None:
    same = {"ternary": "terngrad"}  # one coder under two names
    stages = {"clip"}  # only elementwise work
    assert {same.get(name, name) for name in CATALOG} - stages == set(CODECS)

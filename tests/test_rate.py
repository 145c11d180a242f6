"""Rates as people write them."""

import pytest

from thinwire.errors import LabError
from thinwire.texts import parse_rate


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

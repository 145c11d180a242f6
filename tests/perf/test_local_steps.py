"""Forecasts of local steps: what they say, in order, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thinwire.cli.plan import run
from thinwire.errors import PlanError
from thinwire.perf.local_steps import read_everys


def rows(capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, Any]]:
    run(["plan", "resnet50", "--nodes", "4", "--link", "100mbit", "--json", *more])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_a_round_shares_its_exchange(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "--local", "10,30", "--codecs", "qsgd:4", "--steps", "3600")
    assert (found[0]["codec"], found[0]["every"], found[0]["speedup_vs_ddp"]) == ("dense", 1, 1.0)
    by_name = {(row["codec"], row["every"]): row for row in found}
    ten, thirty = by_name["qsgd:4", 10], by_name["qsgd:4", 30]
    assert ten["bytes_per_worker"] == pytest.approx(3 * thirty["bytes_per_worker"])
    assert thirty["step_ms"] < ten["step_ms"] < found[0]["step_ms"]
    assert ten["hours"] == pytest.approx(ten["step_ms"] / 1e3)
    later = [row["step_ms"] for row in found[1:]]
    assert later == sorted(later)


def test_the_table_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", "resnet50", "--link", "20mbit", "--local", "30", "--codecs", "sparseloco"])
    text = capsys.readouterr().out
    assert "every 30 steps" in text
    assert "every step (DDP)" in text


@pytest.mark.parametrize("text", ["", "0", "ten", "10,-1"])
def test_what_is_no_number_of_steps_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="must be numbers of local steps"):
        read_everys(text)

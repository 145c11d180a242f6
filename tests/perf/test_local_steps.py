"""Forecasts of local steps: what they say, in order, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from thinwire.cli.forecast import Asked
from thinwire.cli.plan import run
from thinwire.errors import LabError, PlanError
from thinwire.perf.forecast import Setting
from thinwire.perf.local_steps import ALLOWED, STUDIED, local_forecasts, read_everys
from thinwire.perf.network import EMBEDDING, Network, device_named, weighted


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


def test_the_answer_is_the_soonest_of_what_was_studied(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "--local", "10,30", "--steps", "100")
    (best,) = (row for row in found if row["soonest_studied"])
    assert (best["codec"], best["every"]) == ("qsgd:4", 30)
    assert best["studied_gap_nats"] == STUDIED["qsgd:4", 30] <= ALLOWED
    assert best["step_ms"] > found[1]["step_ms"]  # others are quicker, and nobody knows what they lose
    run(["plan", "resnet50", "--link", "20mbit", "--local", "30", "--steps", "100"])
    told = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("soonest"))
    assert "qsgd:4 every 30 steps" in told
    assert "for 100 steps (DDP " in told


def test_where_nothing_studied_is_quicker_it_is_ddp(capsys: pytest.CaptureFixture[str]) -> None:
    run(["plan", "resnet50", "--local", "1", "--codecs", "fp16"])
    assert "soonest of what was studied: DDP itself" in capsys.readouterr().out


def test_tokens_are_as_many_steps_of_all_workers(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["plan", "gpt2-medium", "--nodes", "4", "--batch", "8", "--local", "30", "--codecs", "qsgd:4"]
    run([*options, "--tokens", "3.2768e6", "--json"])
    row = json.loads(capsys.readouterr().out.splitlines()[0])
    assert row["hours"] == pytest.approx(100 * row["step_ms"] / 3.6e6)  # 100 x 4 x 8 sequences of 1,024
    with pytest.raises(LabError, match="give one"):
        run([*options, "--tokens", "1e6", "--steps", "5"])
    with pytest.raises(LabError, match="one image, not of tokens: give --steps"):
        run(["plan", "resnet50", "--local", "30", "--tokens", "1e6"])
    with pytest.raises(LabError, match="above 0"):
        run([*options, "--tokens", "-5"])
    with pytest.raises(LabError, match="give --local too"):
        run(["plan", "resnet50", "--steps", "5"])


def test_bytes_are_those_of_an_exchange_of_bare_tensors() -> None:
    """Embeddings and last layers are compressed with all others, as `tw.DiLoCo` does it."""
    layers = weighted("embedding", (4096, 64), 1, EMBEDDING, bias=False)
    setting = Setting.of(
        Network("table", tuple(layers)), Asked("table").topology(), device_named("cpu"), 100.0
    )
    plain, *others = local_forecasts(("dense", "qsgd:4"), (10,), setting)
    by_name = {(one.codec, one.every): one.sent_bytes for one in others}
    assert by_name["qsgd:4", 1] == plain.sent_bytes  # under DDP a table stays dense
    assert 10 * by_name["qsgd:4", 10] < plain.sent_bytes / 5


@pytest.mark.parametrize("text", ["", "0", "ten", "10,-1"])
def test_what_is_no_number_of_steps_is_refused(text: str) -> None:
    with pytest.raises(PlanError, match="must be numbers of local steps"):
        read_everys(text)

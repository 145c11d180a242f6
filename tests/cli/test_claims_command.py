"""claims: a table that fits, rows for programs, clear mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest
from printed import Call

from thinwire_lab.claims.registry import CLAIMS

FIRST_WORDS = ("reproduced", "partly", "refuted", "untestable", "open")


def test_json_has_a_row_a_claim(call: Call) -> None:
    rows = call("claims", "--json").rows()
    assert [row["id"] for row in rows] == [claim.id for claim in CLAIMS]
    for row in rows:
        assert {"id", "paper", "claim", "command", "measured", "verdict", "scaled_down", "seeds"} <= set(row)
        assert row["verdict"].startswith(FIRST_WORDS)
        assert row["command"].startswith("thinwire ")
    judged = [row for row in rows if not row["verdict"].startswith(("open", "untestable"))]
    assert len(judged) >= 14


def test_the_table_fits_80_columns(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    lines = call("claims").out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert [claim.id for claim in CLAIMS if claim.id not in text] == []


def test_without_records_everything_is_open_and_it_says_where_they_are(call: Call, tmp_path: Path) -> None:
    words = call("claims", "--records", str(tmp_path)).words()
    assert "There are no records in" in words
    assert "--records" in words


def test_a_page_is_not_written_into_a_folder_that_is_not_there(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of the clone it made a folder docs."""
    monkeypatch.chdir(tmp_path)
    printed = call("claims", "page")
    assert printed.code == 2
    assert "docs/background does not exist here" in printed.err
    assert "--out" in printed.err
    assert not any(tmp_path.iterdir())


def test_a_model_is_run_and_judged(call: Call, tmp_path: Path) -> None:
    words = ("claims", "run", "terngrad-vgg", "--records", str(tmp_path / "new"))
    assert "verdict: reproduced" in call(*words).words()
    [row] = call(*words, "--json").rows()
    assert row["id"] == "terngrad-vgg"
    assert len((tmp_path / "new" / "claims.jsonl").read_text().splitlines()) == 1


def test_mistakes(call: Call, tmp_path: Path) -> None:
    unknown = call("claims", "run", "terngrad-worker")
    assert unknown.code == 2
    assert "known are terngrad-workers," in unknown.err
    missing = call(
        "claims", "run", "qsgd-accuracy", "--data", str(tmp_path / "x"), "--records", str(tmp_path)
    )
    assert missing.code == 2
    assert "does not exist" in missing.err
    elsewhere = call("claims", "run", "gradiveq-accuracy", "--records", str(tmp_path))
    assert elsewhere.code == 2
    assert "thinwire compare cifar10-study" in elsewhere.err

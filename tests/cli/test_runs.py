"""train, compare and report: one small comparison, run once and looked at from all sides."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from printed import Call
from typer.testing import CliRunner

from thinwire.cli.table import split_codecs
from thinwire.errors import LabError
from thinwire.texts import rate_or_none
from thinwire_lab.cli.app import make_app

SMALL = ("--workers", "2", "--steps", "4", "--evaluations", "2", "--network", "loopback")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory, forked_workers: None) -> list[dict[str, Any]]:
    """What `compare --json` printed."""
    out = str(tmp_path_factory.mktemp("runs"))
    words = ["compare", "digits", "--codecs", "ddp,terngrad", *SMALL, "--out", out, "--json"]
    result = CliRunner().invoke(make_app(), words)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_compare_prints_a_row_for_each_codec(rows: list[dict[str, Any]]) -> None:
    ddp, terngrad = rows
    assert (ddp["codec"], terngrad["codec"]) == ("ddp", "terngrad")
    assert ddp["bytes_per_step"] == 4 * 151_306
    assert terngrad["ratio"] > 8
    assert set(terngrad["speedup"]) == set(terngrad["score"]) == {"mean", "deviation"}
    assert terngrad["speedup"]["mean"] > 0
    folder = Path(terngrad["folder"])
    files = {"rows.jsonl", "summary.json", "report.html", "records.jsonl"}
    assert {path.name for path in folder.iterdir()} == files


def test_report_makes_the_page_again(call: Call, rows: list[dict[str, Any]], tmp_path: Path) -> None:
    folder = shutil.copytree(rows[0]["folder"], tmp_path / "run")
    (folder / "report.html").unlink()
    words = call("report", str(folder)).words()
    assert "terngrad sent" in words
    assert "report.html" in words
    assert (folder / "report.html").exists()
    again = call("report", str(folder), "--json").rows()
    assert [{**row, "folder": ""} for row in again] == [{**row, "folder": ""} for row in rows]


def test_the_readmes_picture_is_drawn_from_records(
    call: Call, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    speed, out = Path(__file__).parents[2] / "docs" / "records" / "grid.jsonl", tmp_path / "gain.svg"
    accuracy = Path(rows[0]["folder"]) / "records.jsonl"
    files = ("--speed", str(speed), "--accuracy", str(accuracy))
    assert call("picture", str(out), *files).code == 0
    assert "digits-cnn on digits, 2 workers, 4 steps, 1 seed" in out.read_text()
    refused = call("picture", str(out), *files, "--codecs", "ddp,sign")
    assert (refused.code, "no run of sign" in refused.err) == (2, True)
    assert "has no runs" in call("picture", str(out), *files[:3], str(tmp_path / "none.jsonl")).err
    assert "does not exist" in call("picture", str(out), *files[2:], "--speed", "none.jsonl").err


def test_several_runs_on_one_page_and_a_picture(
    call: Call, rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    folders = [str(shutil.copytree(rows[0]["folder"], tmp_path / name)) for name in ("one", "two")]
    picture = tmp_path / "gain.svg"
    words = ("report", *folders, "--out", str(tmp_path / "pages"), "--picture", str(picture))
    printed = call(*words, "--rate", "100mbit", "--json").rows()
    assert [row["codec"] for row in printed] == [
        "ddp (one)",
        "terngrad (one)",
        "ddp (two)",
        "terngrad (two)",
    ]
    assert "time of a step at 100mbit" in picture.read_text()
    assert "terngrad (two)" in (tmp_path / "pages" / "report.html").read_text()
    assert call("report", folders[0], "--rate", "fast").code != 0


@pytest.mark.usefixtures("forked_workers")
def test_train_saves_and_goes_on(call: Call, tmp_path: Path) -> None:
    saved, out = str(tmp_path / "run.pt"), ("--out", str(tmp_path), "--json")
    [first] = call("train", "digits", *SMALL, "--checkpoint", saved, "--stop-at", "2", *out).rows()
    curves = ("--tensorboard", str(tmp_path / "curves"))
    [second] = call("train", "digits", *SMALL, "--resume", saved, *curves, *out).rows()
    summaries = [json.loads((Path(row["folder"]) / "summary.json").read_text()) for row in (first, second)]
    assert [summary["runs"][0]["steps"] for summary in summaries] == [2, 2]
    assert summaries[1]["command"].startswith("thinwire train digits")
    assert list((tmp_path / "curves" / "auto-seed0").glob("events.*"))


def test_codecs_with_commas_are_quoted() -> None:
    assert split_codecs("ddp, terngrad") == ("ddp", "terngrad")
    assert split_codecs('ddp,"terngrad:clip=2.5,block=512"') == ("ddp", "terngrad:clip=2.5,block=512")
    assert split_codecs(" ") == ()


def test_no_limit_is_a_rate() -> None:
    assert rate_or_none("none") is None
    assert rate_or_none("100mbit") == "100mbit"
    with pytest.raises(LabError, match="not understood"):
        rate_or_none("nothing")

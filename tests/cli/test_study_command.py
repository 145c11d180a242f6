"""study: rows, tables, a report and a picture of a short training run."""

from __future__ import annotations

import json
from pathlib import Path

from printed import Call

from thinwire_lab.study.errors import FORMATS

SMALL = ("--tasks", "digits", "--steps", "20")


def test_errors_writes_rows_tables_report_and_picture(call: Call, tmp_path: Path) -> None:
    words = ("--methods", "topk fp32,terngrad,qsgd", "--bits", "1.6,2", "--out", str(tmp_path))
    assert "nothing to compare" in call("study", "errors", *SMALL, *words, "--png").words()
    [folder] = tmp_path.iterdir()
    assert {path.name for path in folder.iterdir()} == {
        "rows.jsonl",
        "report.html",
        "tables.md",
        "report.png",
    }
    rows = [json.loads(line) for line in (folder / "rows.jsonl").read_text().splitlines()]
    errors = [row for row in rows if row["row"] == "error"]
    assert len(errors) == 3 * 3 * 2
    assert {"error", "bits", "target", "meets", "codec"} <= errors[0].keys()


def test_formats_json(call: Call, tmp_path: Path) -> None:
    rows = call("study", "formats", *SMALL, "--out", str(tmp_path), "--json").rows()
    assert len(rows) == 3 * len(FORMATS)
    assert all(0 <= row["underflow"] <= 1 and row["error"] >= 0 for row in rows)

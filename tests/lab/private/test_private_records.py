"""Records: a finished run is found again, a damaged line is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thinwire.errors import PrivateError
from thinwire_lab.private.records import BenchOptions, BenchRecords, write_tables


def test_what_is_recorded_is_not_run_again(tmp_path: Path) -> None:
    records = BenchRecords("ladder", tmp_path)
    runs = []

    def run() -> dict[str, int]:
        runs.append(1)
        return {"bytes": len(runs)}

    assert records.once({"net": "digits"}, run) == {"bytes": 1}
    assert records.once({"net": "digits"}, run) == {"bytes": 1}
    assert records.once({"net": "other"}, run) == {"bytes": 2}
    assert records.once({"net": "digits"}, run, again=True) == {"bytes": 3}
    assert records.find({"net": "digits"}) == {"bytes": 3}
    lines = [json.loads(line) for line in records.path.read_text().splitlines()]
    assert [set(line) for line in lines] == [{"settings", "commit", "load", "result"}] * 3


def test_a_damaged_line_is_told(tmp_path: Path) -> None:
    records = BenchRecords("ladder", tmp_path)
    records.path.write_text("{half a li")
    with pytest.raises(PrivateError, match="is not JSON"):
        records.find({})


def test_tables_are_made_from_records_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = BenchRecords("ladder", tmp_path)
    for name, size in (("B0", 1000), ("S6", 100)):
        sizes = {"bytes": size, "predicted_bytes": size, "online_bytes": 10}
        row = {"net": "digits", "variant": name, **sizes, "flights": 3, "mismatches": 0}
        records.once({"rung": name}, row.copy)
    (tmp_path / "docs" / "background").mkdir(parents=True)
    page = tmp_path / "docs" / "background" / "private.md"
    page.write_text("before\n<!-- tables -->\nstale\n<!-- end of tables -->\nafter\n")
    monkeypatch.chdir(tmp_path)
    (printed,) = write_tables(BenchOptions(records=tmp_path), lambda text: None)
    assert "| S6 | 100 | 0.0 | 10.00x |" in printed["text"]
    assert page.read_text().startswith("before\n<!-- tables -->\n### The ladder")
    assert page.read_text().endswith("<!-- end of tables -->\nafter\n")
    assert "stale" not in page.read_text()

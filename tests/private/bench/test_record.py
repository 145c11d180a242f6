"""Records: a finished run is found again, a damaged line is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thinwire.errors import PrivateError
from thinwire.private.bench.record import Records


def test_what_is_recorded_is_not_run_again(tmp_path: Path) -> None:
    records = Records("ladder", tmp_path)
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
    records = Records("ladder", tmp_path)
    records.path.write_text("{half a li")
    with pytest.raises(PrivateError, match="is no JSON"):
        records.find({})

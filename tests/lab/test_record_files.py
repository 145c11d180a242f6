"""Files of JSON lines: what was cut off does not count and harms nothing that is added later."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from thinwire.errors import LabError
from thinwire_lab.records import RecordFile, commit, origin


def number(record: dict[str, Any]) -> int:
    return int(record["n"])


def test_lines_come_back_in_their_order(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "new" / "lines.jsonl")
    assert list(file.read(number)) == []
    for n in (3, 1, 2):
        file.append({"n": n})
    assert list(file.read(number)) == [3, 1, 2]


@pytest.mark.parametrize(("end", "found"), [('{"n": 2', [1]), ('{"n": 2}', [1, 2])], ids=["cut", "whole"])
def test_a_last_line_without_its_newline_counts_if_it_is_whole(
    tmp_path: Path, end: str, found: list[int]
) -> None:
    file = RecordFile(tmp_path / "lines.jsonl")
    file.path.write_text('{"n": 1}\n' + end)
    assert list(file.read(number)) == found
    file.append({"n": 9})
    assert list(file.read(number)) == [*found, 9]
    assert [json.loads(line)["n"] for line in file.path.read_text().splitlines()] == [*found, 9]


def test_a_damaged_line_is_named_or_passed_over(tmp_path: Path) -> None:
    file = RecordFile(tmp_path / "lines.jsonl")
    file.path.write_text('{"n": 1}\n{"m": 2}\nno JSON\n{"n": 3}\n')
    with pytest.raises(LabError, match="is damaged in line 2: delete that line"):
        list(file.read(number))
    assert list(file.read(number, skip_damaged=True)) == [1, 3]


def test_a_place_that_cannot_be_written_has_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(LabError, match=r"cannot be written .* name another file"):
        RecordFile(tmp_path).append({"n": 1})


def test_a_line_tells_which_source_made_it() -> None:
    assert origin()["commit"] == commit()
    assert set(origin()) == {"commit", "made"}

"""docs/claims.md says what the records say."""

from __future__ import annotations

import json
from pathlib import Path

from thinwire_lab.claims.registry import CLAIMS, judge_claim, page, write_page

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_is_made_of_the_records() -> None:
    judged = [judge_claim(claim, DOCS / "records") for claim in CLAIMS]
    assert (DOCS / "claims.md").read_text() == page(judged), "run thinwire claims page"


def test_records_name_no_folder_of_a_machine() -> None:
    for line in (DOCS / "records" / "claims.jsonl").read_text().splitlines():
        assert "/work" not in line
        assert "/home" not in line
        assert set(json.loads(line)) == {"kind", "settings", "seed", "wire", "commit", "made", "result"}


def test_a_page_of_nothing(tmp_path: Path) -> None:
    write_page([judge_claim(claim, tmp_path) for claim in CLAIMS], tmp_path / "claims.md")
    text = (tmp_path / "claims.md").read_text()
    assert text.count("**open**") + text.count("**untestable**") == len(CLAIMS)
    assert [path.name for path in tmp_path.iterdir()] == ["claims.md"]  # and no picture

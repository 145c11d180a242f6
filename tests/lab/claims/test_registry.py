"""Claims are run, recorded and judged; docs/background/claims.md says what the records say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from made_claims import MadeStudy, made_claim

from thinwire.errors import LabError
from thinwire.plans.lane import WIRE_VERSION
from thinwire_lab.claims.claim import CLAIMS_FILE, ClaimRecords, ClaimRun, Recorded, Untestable
from thinwire_lab.claims.registry import CLAIMS, find_claim, judge_claim, page, run_claim, write_page

FIRST_WORDS = ("reproduced", "partly", "refuted", "untestable", "open")


def tell(what: str, done: int, of: int) -> None:
    assert done <= of


def verdict(folder: Path, scaled_down: str = "all of it", why_no_seeds: str = "") -> str:
    return judge_claim(made_claim(MadeStudy(), scaled_down, why_no_seeds), folder).judgement.verdict


def test_two_seeds_make_a_verdict(tmp_path: Path) -> None:
    assert verdict(tmp_path).startswith("open: run thinwire claims run made")
    run_claim(made_claim(MadeStudy()), tmp_path, None, 1, tell)
    assert verdict(tmp_path).startswith("open: 1 seed of 2")
    judged = run_claim(made_claim(MadeStudy()), tmp_path, None, None, tell)
    assert (judged.judgement.verdict, judged.judgement.measured) == ("reproduced", "4 runs")
    assert judged.row()["seeds"] == [0, 1]


def test_without_a_word_on_what_was_scaled_down_it_is_open(tmp_path: Path) -> None:
    run_claim(made_claim(MadeStudy()), tmp_path, None, 2, tell)
    assert verdict(tmp_path, scaled_down="") == "open: what was scaled down is not said"


def test_where_nothing_is_drawn_one_run_will_do(tmp_path: Path) -> None:
    study = MadeStudy()
    judged = run_claim(made_claim(study, why_no_seeds="a model"), tmp_path, None, None, tell)
    assert (len(study.performed), judged.judgement.verdict) == (2, "reproduced")
    assert judged.row()["seeds"] == "a model"


def test_a_seed_with_a_missing_run_does_not_count(tmp_path: Path) -> None:
    records = ClaimRecords(tmp_path / CLAIMS_FILE)
    for seed in (0, 1):
        records.add(MadeStudy().runs(seed)[0], {"accuracy": 1.0})
    assert verdict(tmp_path).startswith("open: run")


def test_what_is_recorded_is_not_run_again(tmp_path: Path) -> None:
    first, second = MadeStudy(), MadeStudy()
    run_claim(made_claim(first), tmp_path, None, 2, tell)
    run_claim(made_claim(second), tmp_path, None, 3, tell)
    assert [run.seed for run in first.performed] == [0, 0, 1, 1]
    assert [run.seed for run in second.performed] == [2, 2]


def test_a_line_says_what_was_run_by_which_commit(tmp_path: Path) -> None:
    run = ClaimRun("made", {"codec": "dense"}, 7)
    path = tmp_path / CLAIMS_FILE
    ClaimRecords(path).add(run, {"accuracy": 0.25})
    line = json.loads(path.read_text())
    assert {"kind", "settings", "seed", "wire", "commit", "made", "result"} == set(line)
    assert (line["seed"], line["wire"]) == (7, WIRE_VERSION)
    path.write_text(json.dumps({**line, "wire": 1}) + "\n")
    assert ClaimRecords(path).find(run) is None
    path.write_text(json.dumps(line) + "\n" + '{"kind": "torn')
    found = ClaimRecords(path).find(run)
    assert found is not None
    assert found.result == {"accuracy": 0.25}
    path.write_text("{}\n")
    with pytest.raises(LabError, match="line 1"):
        ClaimRecords(path).find(run)


def test_what_cannot_be_tested_says_why(tmp_path: Path) -> None:
    claim = made_claim(Untestable("no cluster"))
    assert judge_claim(claim, tmp_path).judgement.verdict == "untestable: no cluster"
    with pytest.raises(LabError, match="no cluster"):
        run_claim(claim, tmp_path, None, None, tell)


def test_runs_of_another_command_name_it(tmp_path: Path) -> None:
    claim = made_claim(Recorded("other.jsonl", "thinwire compare digits", lambda path: []))
    assert judge_claim(claim, tmp_path).judgement.verdict == "open: run thinwire compare digits"
    with pytest.raises(LabError, match="thinwire compare digits"):
        run_claim(claim, tmp_path, None, None, tell)


def test_the_registry_is_complete(tmp_path: Path) -> None:
    ids = [claim.id for claim in CLAIMS]
    assert len(set(ids)) == len(ids) >= 30
    assert [claim.id for claim in CLAIMS if not claim.scaled_down] == []
    for claim in CLAIMS:
        row = judge_claim(claim, tmp_path).row()
        assert {"id", "paper", "claim", "command", "measured", "verdict"} <= set(row)
        assert row["verdict"].startswith(("open", "untestable"))  # nothing is recorded there


def test_an_unknown_claim_is_refused_by_naming_the_known() -> None:
    with pytest.raises(LabError, match=r"no claim 'x': known are .*terngrad-workers"):
        find_claim("x")


DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_is_made_of_the_records() -> None:
    judged = [judge_claim(claim, DOCS / "records") for claim in CLAIMS]
    assert (DOCS / "background" / "claims.md").read_text() == page(judged), "run thinwire claims page"


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

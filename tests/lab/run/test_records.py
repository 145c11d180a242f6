"""A study goes on where it stopped: finished runs are lines of a file, and are not run again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from forked_workers import forked_loopback
from thinwire.errors import LabError
from thinwire.plans.lane import WIRE_VERSION
from thinwire_lab.report.record import Record, Row, RunOutcome, outcome_from_rows
from thinwire_lab.run.progress import Silent
from thinwire_lab.run.recipe import Recipe, digits
from thinwire_lab.run.records import RunRecords, RunSettings
from thinwire_lab.run.session import TrainingSession, grid

STEPS: list[Row] = [
    {"row": "step", "step": step, "epoch": step / 10, "seconds": step / 2, "loss": 1 / step}
    for step in (2, 4)
]
SCORES = {"loss": 0.5, "test_loss": 0.25, "accuracy": 0.9, "score": 0.9, "bytes": 10.0}
EVALUATION: Row = {"row": "evaluation", "step": 4, "epoch": 0.4, "seconds": 2.0, **SCORES}
RESULT: Row = {
    "row": "result",
    "step": 4,
    "steps": 4,
    "seconds": 2.0,
    "step_ms": 500.0,
    "bytes_per_step": 2.5,
    "bytes_source": "x",
    "dense_bytes_per_step": 9.0,
    "parameters": "abc",
    "report": None,
}
ROWS = [*STEPS, EVALUATION, RESULT]
SETTINGS = RunSettings(digits(), "loopback")


def made(codec: str = "terngrad") -> RunOutcome:
    return outcome_from_rows(f"{codec}, seed 0", codec, codec, 0, "accuracy", ROWS)


@pytest.fixture
def records(tmp_path: Path) -> RunRecords:
    return RunRecords(tmp_path / "records.jsonl")


def test_what_was_added_is_found(records: RunRecords) -> None:
    assert records.find(SETTINGS) is None
    records.add(SETTINGS, made(), ROWS)
    assert records.find(SETTINGS) == (made(), [*STEPS, EVALUATION])
    for other in (
        replace(SETTINGS, network="virtual"),
        replace(SETTINGS, wire=1),
        replace(SETTINGS, baseline="ddp"),
        replace(SETTINGS, recipe=replace(digits(), seed=1)),
        replace(SETTINGS, recipe=replace(digits(), codec="topk:0.01")),
    ):
        assert records.find(other) is None


def test_a_line_says_what_made_it(records: RunRecords) -> None:
    records.add(SETTINGS, made(), ROWS)
    [line] = [json.loads(line) for line in records.path.read_text().splitlines()]
    assert set(line) == {"settings", "commit", "made", "result", "rows"}
    assert (line["settings"]["wire"], line["settings"]["network"]) == (WIRE_VERSION, "loopback")
    assert line["result"]["score"] == 0.9


def test_a_run_of_an_older_wire_version_counts_while_the_bytes_of_its_codec_are_the_same(
    records: RunRecords,
) -> None:
    """Version 3 changed fp16 alone."""
    fp16 = replace(SETTINGS, recipe=replace(digits(), codec="topk:0.01 >> fp16"))
    for settings, counts in ((SETTINGS, True), (fp16, False)):
        records.add(replace(settings, wire=2), made(), ROWS)
        assert (records.find(settings) is not None) == counts
    assert len(records.runs()) == 1


def test_the_later_of_two_counts(records: RunRecords) -> None:
    records.add(SETTINGS, made(), ROWS)
    records.add(SETTINGS, replace(made(), score=0.5), ROWS)
    found = records.find(SETTINGS)
    assert found is not None
    assert found[0].score == 0.5


def test_a_writer_that_was_killed_leaves_no_harm(records: RunRecords) -> None:
    records.add(SETTINGS, made(), ROWS)
    whole = records.path.read_text()
    records.path.write_text(whole + whole[:100])
    records.check()
    second = replace(SETTINGS, wire=7)
    records.add(second, made("sign"), ROWS)
    assert records.find(SETTINGS) is not None
    assert records.find(second) == (made("sign"), [*STEPS, EVALUATION])


def test_recipes_of_a_later_thinwire_are_other_runs(records: RunRecords) -> None:
    records.add(SETTINGS, made(), ROWS)
    line = json.loads(records.path.read_text())
    line["settings"]["recipe"]["news"] = 1
    records.path.write_text(json.dumps(line) + "\n")
    assert records.find(SETTINGS) is None


def test_damage_has_a_sentence(records: RunRecords) -> None:
    records.path.write_text('{"settings": {}}\n')
    with pytest.raises(LabError, match="is damaged in line 1: delete that line"):
        records.check()
    with pytest.raises(LabError, match="for --records does not exist"):
        RunRecords(records.path.parent / "no" / "records.jsonl").check()


@pytest.fixture
def forked() -> Iterator[None]:
    with forked_loopback():
        yield


@pytest.mark.usefixtures("forked")
def test_a_session_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two codecs one is recorded; then all are, and nothing is run."""
    started: list[str] = []
    from thinwire_lab.run import session as module

    launch = module.launch

    def noted(recipe: Recipe, *rest: Any) -> Any:
        started.append(recipe.codec)
        return launch(recipe, *rest)

    monkeypatch.setattr(module, "launch", noted)
    recipe = replace(digits(), workers=2, steps=3, evaluations=1)

    def run(*codecs: str) -> Record:
        file = tmp_path / "study.jsonl"
        session = TrainingSession(
            "", "study", grid(recipe, codecs, 1), tmp_path, network="loopback", records=file
        )
        return session.run(Silent())[0]

    run("terngrad")
    both = run("terngrad", "sign")
    assert started == ["terngrad", "sign"]
    again = run("terngrad", "sign")
    assert started == ["terngrad", "sign"]
    assert again.outcomes == both.outcomes

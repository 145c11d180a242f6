"""Tables fit 80 columns (and 60), and no figure of theirs is cut."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from thinwire_lab.cli.options import print_table
from thinwire_lab.run.records import RunRecords
from thinwire_lab.study.accuracy import HEADS, accuracy_rows, accuracy_studies

ROOT = Path(__file__).resolve().parents[2]
RECORDS = ("accuracy-cifar10", "accuracy-mnist", "accuracy-shakespeare", "accuracy-digits")


def said(text: str) -> str:
    return re.sub(r"\s+", "", text)


@pytest.mark.parametrize("width", [60, 80, 200])
@pytest.mark.parametrize("name", RECORDS)
def test_the_table_of_accuracy_has_its_numbers(
    name: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was names, and one column of single letters."""
    monkeypatch.setenv("COLUMNS", str(width))
    for study in accuracy_studies(RunRecords(ROOT / "docs" / "records" / f"{name}.jsonl").checked().runs()):
        rows = accuracy_rows(study)
        print_table(HEADS, rows, study.setting, narrow=True)
        printed = capsys.readouterr().out
        assert all(len(line) <= width for line in printed.splitlines()), printed
        assert "…" not in printed
        for row in rows:
            for cell in row[1:]:
                whole = cell.split() if cell[:1].isalpha() else [cell]  # words may be broken between
                assert all(said(piece) in said(printed) for piece in whole), (cell, printed)


@pytest.mark.parametrize("narrow", [True, False])
@pytest.mark.parametrize("columns", [2, 6, 12])
def test_figures_are_whole_however_many_there_are(
    narrow: bool, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    heads = ["codec", *(f"the head of {k}" for k in range(columns))]
    rows = [
        [
            f"topk:0.0{k} >> qsgd:4 @ feedback=momentum:mask=off,lr=on",
            *(f"{12.345 * c:.3f} ms" for c in range(columns)),
        ]
        for k in range(3)
    ]
    print_table(heads, rows, "a title", narrow)
    printed = capsys.readouterr().out
    assert all(len(line) <= 80 for line in printed.splitlines()), printed
    for row in rows:
        for cell in row[1:]:
            assert cell in printed

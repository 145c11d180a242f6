"""The grid: a tiny one really run, records that are skipped, the page made of them, and the figures in it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from forked_workers import forked_loopback
from thinwire.errors import LabError
from thinwire_lab.bench.cell import Cell, cells
from thinwire_lab.bench.grid import (
    Errors,
    ForecastPoint,
    job_of,
    means,
    points,
    read_records,
    spread,
    verdict,
)
from thinwire_lab.bench.grid_page import write_page
from thinwire_lab.cli.app import make_app


def record(**others: Any) -> dict[str, Any]:
    return {
        "model": "alexnet",
        "rate": "1gbit",
        "workers": 4,
        "machine": "a machine",
        "version": "1.0",
        "wire_version": 2,
        "commit": "abc",
        "forecast_ms": {"ddp": 110.0, "gradiveq:8 sample": 90.0, "gradiveq:8 project": 40.0},
        "measured_ms": {
            "ddp": 100.0,
            "ddp-again": 101.0,
            "gradiveq:8 sample": 100.0,
            "gradiveq:8 project": 50.0,
            "auto": 63.0,
        },
        "shares": {"gradiveq:8 sample": 0.2, "gradiveq:8 project": 0.798},
        "aa_quartiles": [0.98, 1.03],
        **others,
    }


def test_cells_are_all_there_once() -> None:
    made = cells(["alexnet", "resnet20"], ["100mbit", None], [2, 4])
    assert len(made) == len(set(made)) == 8
    assert made[0] == Cell("resnet20", None, 2)
    assert Cell("resnet20", None, 2).name == "resnet20, unshaped, 2 workers"


def test_errors_are_of_what_was_measured() -> None:
    found = {point.name: point.error for point in points([record()])}
    assert found == pytest.approx({"ddp": 0.1, "gradiveq:8 sample": -0.1, "gradiveq:8 project": -0.2})
    cell = Cell("m", None, 2)
    made = [ForecastPoint(cell, "x", 100.0 + error, 100.0) for error in range(0, 101, 10)]
    assert (Errors.of(made).median, Errors.of(made).ninetieth) == pytest.approx((0.5, 0.9))
    assert math.isnan(Errors.of([]).median)


def test_phases_are_weighed_and_auto_is_judged() -> None:
    assert means(record())["gradiveq:8"] == pytest.approx((0.2 * 100 + 0.798 * 50) / 0.998)
    assert spread(record()) == pytest.approx(0.03)
    made = verdict(record())
    assert made is not None
    assert made.best == "gradiveq:8"
    assert made.slower_than_ddp == pytest.approx(-0.37)
    assert made.holds
    slow = verdict(record(measured_ms={"ddp": 100.0, "auto": 109.0}, shares={}))
    assert slow is not None
    assert not slow.holds  # 9 % is more than 5 % and the spread of 3 %
    assert verdict(record(measured_ms={"ddp": 100.0}, shares={})) is None


def test_the_page_has_every_cell_and_a_picture(tmp_path: Path) -> None:
    page, picture = tmp_path / "grid.md", tmp_path / "figures" / "grid.png"
    write_page([record(), record(rate=None, workers=2)], page, picture, Path("records.jsonl"))
    text = page.read_text()
    assert "| alexnet, 1gbit, 4 | +10.0 | -10.0 | -20.0 |" in text
    assert "alexnet, unshaped, 2" in text
    assert "It holds in 2 of 2 cells" in text
    assert picture.stat().st_size > 5000
    with pytest.raises(LabError, match="no records yet: run thinwire bench grid"):
        write_page([], page, picture, Path("records.jsonl"))


def test_records_that_are_damaged_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "grid.jsonl"
    assert read_records(path) == []
    lines = [json.dumps(record(commit="old")), "[1]", '{"model": 3}', json.dumps(record())[:-9]]
    path.write_text("\n".join([*lines, json.dumps(record(commit="new"))]))
    assert [found["commit"] for found in read_records(path)] == ["new"]


@pytest.mark.parametrize(
    ("cell", "codecs", "words"),
    [
        (Cell("alexnot", None, 2), ["fp16"], "unknown model 'alexnot'"),
        (Cell("lenet", None, 1), ["fp16"], "workers=1: a cell has at least 2"),
        (Cell("lenet", None, 2), ["ddp"], "ddp is run in every cell"),
    ],
)
def test_what_cannot_be_run_is_refused_before_it_starts(cell: Cell, codecs: list[str], words: str) -> None:
    with pytest.raises(LabError, match=words):
        job_of(cell, codecs, [], 4, 1.0, 1)


def test_a_tiny_grid(tmp_path: Path) -> None:
    """Two workers over loopback: inputs, forecasts, times, a record, a page; then nothing is left to run."""
    records, page = tmp_path / "grid.jsonl", tmp_path / "grid.md"
    command = ["bench", "grid", "--models", "digits-cnn", "--rates", "none", "--workers", "2", "--batch", "4"]
    command += [
        "--codecs",
        "terngrad,gradiveq:8",
        "--others",
        "",
        "--seconds",
        "0.2",
        "--repeats",
        "2",
        "--probe-seconds",
        "0.1",
    ]
    command += ["--records", str(records), "--page", str(page), "--json"]
    with forked_loopback():
        first = CliRunner().invoke(make_app(), command)
    assert first.exit_code == 0, first.output
    (made,) = read_records(records)
    names = {"ddp", "terngrad", "gradiveq:8 sample", "gradiveq:8 project"}
    assert set(made["forecast_ms"]) == names
    assert set(made["measured_ms"]) == names | {"ddp-again"}
    assert all(ms > 0 for ms in [*made["forecast_ms"].values(), *made["measured_ms"].values()])
    assert made["repeats"] == 2
    assert "digits-cnn, unshaped, 2" in page.read_text()
    CliRunner().invoke(make_app(), command)
    assert len(records.read_text().splitlines()) == 1

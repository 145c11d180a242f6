"""The study of accuracy against bytes: equal budgets, records that are not run again, an honest verdict."""

from __future__ import annotations

from pathlib import Path

import pytest

from thinwire.errors import LabError
from thinwire_lab.private.records import BenchRecords
from thinwire_lab.private.study import (
    AccuracyStudy,
    Row,
    pareto_picture,
    pareto_points,
    pareto_table,
    pareto_verdict,
    plan_for,
    same_training,
    with_current_bytes,
)
from thinwire_private.net.twq import read_twq
from thinwire_private.train.search import picture_bytes


def test_a_search_costs_no_more_than_its_rival_and_runs_once(tmp_path: Path) -> None:
    records = BenchRecords("accuracy", tmp_path)
    study = AccuracyStudy(
        plan_for("digits"), ("W3A3",), (0,), tmp_path, 1.0, 0.2, models=tmp_path, records=records
    )
    uniform, searched = study.run()
    # training may still move a step, and with it what a shift costs
    assert 0.8 * uniform["bytes"] < searched["bytes"] < 1.01 * uniform["bytes"]
    assert uniform["bits"]["weights"] == {}
    assert set(searched["bits"]["weights"]) == {"conv2", "conv3"}
    assert with_current_bytes(searched)["bytes"] == searched["bytes"]
    assert with_current_bytes({**uniform, "bits": searched["bits"]})["bytes"] != uniform["bytes"]
    model = read_twq(tmp_path / "digits-search-W3A3-0.twq")
    assert picture_bytes(model.graph) == searched["bytes"]
    lines = records.path.read_text()
    assert list(study.run()) == [uniform, searched]
    assert records.path.read_text() == lines


def row(kind: str, rival: str, seed: int, accuracy: float, num_bytes: int) -> Row:
    return {
        "task": "t",
        "net": "n",
        "kind": kind,
        "rival": rival,
        "seed": seed,
        "accuracy": accuracy,
        "bytes": num_bytes,
    }


ROWS = [
    row("uniform", "W4A6", 0, 0.80, 4_000_000),
    row("uniform", "W2A6", 0, 0.70, 2_000_000),
    row("uniform", "W2A6", 1, 0.72, 2_000_000),
    row("search", "W2A6", 0, 0.73, 1_900_000),
    row("search", "W2A6", 1, 0.71, 2_000_000),
]


def test_the_table_and_the_verdict_tell_wins_and_losses() -> None:
    found = pareto_points(ROWS, "t", "n")
    assert [(point.rival, point.kind) for point in found] == [
        ("W2A6", "uniform"),
        ("W2A6", "search"),
        ("W4A6", "uniform"),
    ]
    heads, rows = pareto_table(found)
    assert len(heads) == len(rows[0])
    assert rows[1][2:] == ["1.95", "72.00 ± 1.41", "2"]
    assert pareto_verdict(found) == (
        "at the bytes of W2A6 the search is +1.00 points beside it (better on 1, worse on 1 of 2 seeds)"
    )
    with pytest.raises(LabError, match="no run of other on t is recorded"):
        pareto_points(ROWS, "t", "other")


def test_only_runs_of_equal_training_are_drawn_together() -> None:
    trained = {"epochs": 1.0, "float_epochs": 10.0}
    first, second = ({**ROWS[3], **trained, "measure": "fisher", "accuracy": a} for a in (0.1, 0.2))
    uniform = {**ROWS[1], **trained}
    others = [{**uniform, "epochs": 4.0}, {**first, "measure": "hutchinson"}]
    assert same_training([uniform, first, *others, second], 1, 10, "fisher") == [uniform, second]


def test_the_picture_is_drawn(tmp_path: Path) -> None:
    pareto_picture(pareto_points(ROWS, "t", "n"), "title", tmp_path / "p.svg")
    assert "<svg" in (tmp_path / "p.svg").read_text()

"""What the page draws: curves against bytes and time, colours, layers; and several records as one."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from made_runs import made_record
from thinwire.errors import LabError
from thinwire_lab.report.costs import stage_history
from thinwire_lab.report.drawing import colours
from thinwire_lab.report.page_data import page_data
from thinwire_lab.report.pictures import write_headline_picture
from thinwire_lab.report.record import Record
from thinwire_lab.report.run_report import verdict
from thinwire_lab.report.summary import compare_outcomes, merge, title_of


def test_no_two_codecs_share_a_colour() -> None:
    """The eighth was as grey as the first."""
    assert len(set(colours(f"codec {k}" for k in range(40)).values())) == 40


def test_curves_have_bytes_and_the_seconds_that_no_link_decides() -> None:
    data = page_data(made_record(seeds=(0,)))
    ddp, terngrad = data["score"]["curves"]
    assert data["rate"] == 1e9
    assert ddp["step"] == [5, 10, 15, 20]
    assert ddp["bytes"] == [6e6, 12e6, 18e6, 24e6]
    assert ddp["base"] == pytest.approx([0.5, 1.0, 1.5, 2.0]), "no link: what was waited is none of its time"
    exchange = (0.1 + 0.2 + 0.4 + 0.1 + 0.1) / 20
    assert terngrad["base"] == pytest.approx([step * (0.010 + exchange) for step in (5, 10, 15, 20)])


@pytest.mark.parametrize("rate", ["20mbit", "100mbit", "1gbit"])
@pytest.mark.parametrize("agree_s", [0.0, 0.1, 1.0])
def test_the_slider_never_promises_less_than_was_measured(rate: str, agree_s: float) -> None:
    """Agreeing and latency were left out: it said 26.5 ms where 38.4 had been measured."""
    made = made_record(seeds=(0,))
    origin = replace(made.origin, recipe={**made.origin.recipe, "rate": rate})
    seconds = {"agree": agree_s, "encode": 0.2, "travel": 0.1, "merge": 0.1, "decode": 0.1}
    outcomes = [
        o if o.report is None else replace(o, report={**o.report, "seconds": seconds}) for o in made.outcomes
    ]
    record = Record(origin, tuple(outcomes), made.rows)
    data = page_data(record)
    for codec, run in zip(data["codecs"], outcomes, strict=True):
        promised = sum(codec["stages"].values()) + 8 * codec["bytes_per_step"] / data["rate"]
        assert promised >= run.step_ms / 1e3 - 1e-9, codec
        assert set(codec["stages"]) <= set(data["stages"]), "what has no colour is not drawn"
    for curve, run in zip(data["score"]["curves"], outcomes, strict=True):
        promised = curve["base"][-1] + 8 * curve["bytes"][-1] / data["rate"]
        assert promised >= run.steps * run.step_ms / 1e3 - 1e-3
    assert data["codecs"][1]["stages"]["agree"] == agree_s / 20
    faster = replace(record, origin=replace(origin, recipe={**origin.recipe, "rate": "10gbit"}))
    assert sum(page_data(faster)["codecs"][0]["stages"].values()) >= sum(data["codecs"][0]["stages"].values())


def test_loss_is_there_for_every_step_and_gaps_are_null() -> None:
    record = made_record(seeds=(0,))
    assert page_data(record)["loss"]["curves"][0]["step"] == list(range(1, 21))
    rows = record.rows["ddp, seed 0"]
    rows[0] = {**rows[0], "losses": [float("nan"), 0.5, 0.25, 0.25, 0.25]}
    data = page_data(record)
    assert data["loss"]["curves"][0]["y"][:2] == [None, 0.5]
    json.dumps(data, allow_nan=False)


def test_stages_are_told_stretch_by_stretch() -> None:
    rows = made_record(seeds=(0,)).rows["terngrad, seed 0"]
    last = rows[-1]
    rows[-1] = {**last, "scalars": {"thinwire/seconds_per_step/encode": 0.002}, "waited_s": 0.25}
    history = stage_history(rows)
    assert history["step"] == [5, 10, 15, 20]
    assert history["stages"]["encode"] == pytest.approx([0.001, 0.001, 0.001, 0.005]), "20 of 2 ms in all"
    assert history["stages"]["wait"] == pytest.approx([0.01, 0.01, 0.01, 0.02])
    assert "travel" not in history["stages"]


def test_rows_of_older_records_are_drawn_too() -> None:
    record = made_record(seeds=(0,))
    for label, rows in record.rows.items():
        bare = [{k: v for k, v in row.items() if k not in ("losses", "waited_s", "scalars")} for row in rows]
        record.rows[label] = [row for row in bare if row["row"] != "histograms"]
    data = page_data(record)
    assert data["loss"]["curves"][0]["step"] == [5, 10, 15, 20]
    assert data["histograms"] == data["history"] == []


def test_steps_that_were_written_down_in_short_bend_no_time() -> None:
    """Records of a study keep of a step its loss alone."""
    record = made_record(seeds=(0,))
    whole = page_data(record)["score"]["curves"][0]["base"]
    for label, rows in record.rows.items():
        record.rows[label] = [
            {k: v for k, v in row.items() if row["row"] != "step" or k not in ("losses", "waited_s")}
            for row in rows
        ]
    assert page_data(record)["score"]["curves"][0]["base"] == whole


def test_a_title_of_many_codecs_is_short() -> None:
    record = made_record(("ddp", "terngrad", "topk:0.01"))
    assert title_of(record) == "ddp <against> terngrad"
    long = replace(record.origin, title=" against ".join(["terngrad"] * 9))
    assert title_of(Record(long, record.outcomes, record.rows)) == "3 codecs on digits (digits-cnn)"


def test_of_many_codecs_the_thriftiest_is_told() -> None:
    record = made_record(("ddp", "terngrad", "topk:0.01", "sign"))
    outcomes = [replace(o, score=0.5) if o.asked == "sign" else o for o in record.outcomes]
    assert verdict(compare_outcomes(outcomes)).startswith("topk:0.01 sent 24.0x fewer bytes than ddp")


def test_records_with_other_seeds_are_one() -> None:
    merged = merge({"a": made_record(seeds=(0,)), "b": made_record(("ddp", "sign"), seeds=(1,))})
    assert [(line.codec, line.seeds) for line in compare_outcomes(merged.outcomes)] == [
        ("ddp", 2),
        ("terngrad", 1),
        ("sign", 1),
    ]
    assert set(merged.rows) == {"ddp, seed 0", "terngrad, seed 0", "ddp, seed 1", "sign, seed 1"}


def test_the_same_run_twice_is_told_apart_by_its_folder() -> None:
    merged = merge({"a": made_record(), "b": made_record(("sign", "terngrad"))})
    assert [line.codec for line in compare_outcomes(merged.outcomes)] == [
        "ddp",
        "terngrad (a)",
        "sign",
        "terngrad (b)",
    ]


def test_a_codec_without_a_seed_of_the_baseline_is_compared_all_the_same() -> None:
    merged = merge({"a": made_record(("ddp",), seeds=(0,)), "b": made_record(("x", "sign"), seeds=(5,))})
    assert compare_outcomes(merged.outcomes)[-1].ratio == pytest.approx(12)


def test_runs_of_two_tasks_share_no_page() -> None:
    one, other = made_record(), made_record()
    recipe = {**other.origin.recipe, "task": "mnist"}
    other = Record(replace(other.origin, recipe=recipe), other.outcomes, other.rows)
    with pytest.raises(LabError, match=r"a: digits, b: mnist.*name folders of one task"):
        merge({"a": one, "b": other})


@pytest.mark.parametrize(("rate", "text"), [(None, "100 kB, 12.0x less"), ("100mbit", "63.2 ms, 3.1x less")])
def test_the_headline_picture(tmp_path: Path, rate: str | None, text: str) -> None:
    path = tmp_path / "gain.svg"
    write_headline_picture(made_record(), path, rate)
    texts = [
        "".join(node.itertext()) for node in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert text in texts
    assert "95.50 % (+0.0)" in texts
    assert "prefers-color-scheme: dark" in path.read_text()
    assert path.stat().st_size < 6000

"""Recipes: what they refuse, and how a run names its codec with memory, route and control."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from forked_workers import forked_loopback
from thinwire.errors import LabError, ThinwireError
from thinwire_lab.data import LOADERS, load_task
from thinwire_lab.data.task import ExampleOrder
from thinwire_lab.models import model_card
from thinwire_lab.net.network import Loopback
from thinwire_lab.report.costs import level_kind, level_rows, scheduled
from thinwire_lab.report.record import Record, describe, write_record
from thinwire_lab.report.run_report import write_report
from thinwire_lab.run.ddp_exchange import check_codec
from thinwire_lab.run.launch import launch, shared_task
from thinwire_lab.run.recipe import (
    CodecChoice,
    digits,
    mnist,
    read_codec_choice,
    recipe_for,
    recipe_from_dict,
)
from thinwire_lab.run.session import grid
from thinwire_lab.run.trainer import make_optimizer


@pytest.mark.parametrize("task", LOADERS)
def test_every_task_has_a_recipe_with_a_known_model(task: str) -> None:
    recipe = recipe_for(task)
    assert recipe.task == task
    model_card(recipe.model)
    assert recipe_from_dict(json.loads(json.dumps(recipe.to_dict()))) == recipe


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("workers", 0), ("batch", 0), ("steps", 0), ("epochs", 0.0), ("lr", -1.0), ("seed", -1)),
        *(("optimizer", "lamb"), ("schedule", "zigzag")),
    ],
)
def test_impossible_values_are_named(field: str, value: Any) -> None:
    with pytest.raises(LabError, match=f"{field}.*{value}"):
        replace(digits(), **{field: value})


def test_unknown_task_and_unknown_entries() -> None:
    with pytest.raises(LabError, match="unknown task 'nope': choose one of digits"):
        recipe_for("nope")
    with pytest.raises(LabError, match=r"unknown entries .'colour'.: another version"):
        recipe_from_dict({**digits().to_dict(), "colour": "red"})


def test_steps_from_epochs() -> None:
    recipe = replace(mnist(), batch=16, workers=4, epochs=2)
    assert recipe.num_steps(60_000) == 2 * (60_000 // 64)
    assert replace(recipe, steps=7).num_steps(60_000) == 7
    with pytest.raises(LabError, match="4 workers with batches of 16 need more than the 63 examples"):
        recipe.num_steps(63)


def test_learning_rate_rises_then_falls() -> None:
    recipe = replace(digits(), lr=1.0, warmup=0.1)
    rates = [recipe.lr_at(step, 100) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10] == 1.0
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.01
    assert replace(recipe, schedule="constant").lr_at(99, 100) == 1.0


@given(st.integers(1, 5), st.integers(1, 4), st.integers(0, 30), st.integers(0, 9))
def test_workers_share_no_example_within_an_epoch(workers: int, batch: int, extra: int, seed: int) -> None:
    order = ExampleOrder(workers * batch + extra, batch, workers, seed)
    steps = order.steps_per_epoch
    seen = np.concatenate([np.concatenate(list(order.batches(rank, 0, steps))) for rank in range(workers)])
    assert len(seen) == steps * workers * batch
    assert len(set(seen.tolist())) == len(seen)


@given(st.integers(0, 20), st.integers(0, 3))
def test_order_is_the_same_wherever_one_starts(first: int, rank: int) -> None:
    order = ExampleOrder(num_examples=26, batch=2, workers=4, seed=3)
    whole = list(order.batches(rank, 0, 21))
    rest = list(order.batches(rank, first, 21))
    assert all(np.array_equal(a, b) for a, b in zip(whole[first:], rest, strict=True))


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    first, second = ExampleOrder(64, 64, 1, seed=0).batches(0, 0, 2)
    assert not np.array_equal(first, second)
    assert not np.array_equal(first, next(ExampleOrder(64, 64, 1, seed=1).batches(0, 0, 1)))


def test_grid_interleaves_codecs() -> None:
    recipes = grid(digits(), ("ddp", "terngrad"), 2)
    assert [(r.codec, r.seed) for r in recipes] == [("ddp", 0), ("terngrad", 0), ("ddp", 1), ("terngrad", 1)]
    for codecs, seeds, sentence in (
        (("a", "a"), 1, "name one twice"),
        ((), 1, "no codec"),
        (("a",), 0, "--seeds"),
    ):
        with pytest.raises(LabError, match=sentence):
            grid(digits(), codecs, seeds)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_recipe_names_its_optimizer(name: str) -> None:
    recipe = replace(recipe_for("shakespeare-study"), optimizer=name)
    made = make_optimizer(torch.nn.Linear(2, 2), recipe)
    assert type(made).__name__.lower() == name
    assert made.param_groups[0]["weight_decay"] == 0.1


def test_reading() -> None:
    assert read_codec_choice("terngrad:clip=2.5") == CodecChoice("terngrad:clip=2.5")
    assert read_codec_choice("fft:0.9@route=allgather schedule=epochs:0=1/5=0.5") == CodecChoice(
        "fft:0.9", route="allgather", schedule="epochs:0=1/5=0.5"
    )
    assert read_codec_choice("auto @ hierarchy=2 quality=safe").options()["hierarchy"] == 2
    assert read_codec_choice("sign @ hierarchy=auto").options()["hierarchy"] == "auto"
    assert "hierarchy" not in read_codec_choice("sign").options()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("topk:0.1 @", "nothing stands behind @"),
        ("topk:0.1 @ guard", '"guard" behind @ does not fit'),
        ("topk:0.1 @ seed=3", "one of feedback, route, schedule, bucket"),
        ("topk:0.1 @ bucket=big", "bucket=big must be a size in MB"),
        ("topk:0.1 @ hierarchy=on", "hierarchy=on must be auto, off, or how many workers a node has"),
        ("topk:0.1 @ feedback=none feedback=residual", "feedback is given twice"),
        ("topk:0.1 @ feedback=elephant", '"elephant"'),
        ("topk:0.1 @ route=allreduce", 'use route "allgather"'),
        ("topk:0.1 @ schedule=gard", 'no schedule "gard"'),
        ("terngrad @ schedule=guard", "no compression level to lower"),
        ("ddp @ schedule=guard", "takes no options behind @"),
        ("ddp-fp16 @ feedback=none", "takes no options behind @"),
    ],
)
def test_wrong_texts_are_refused_before_any_process(text: str, words: str) -> None:
    with pytest.raises(ThinwireError) as caught:
        check_codec(text)
    assert words in str(caught.value)


CODECS = (
    "topk:0.01 @ feedback=none",
    "topk:0.01 @ feedback=none schedule=guard:window=1,patience=1,gain=0.9",
)


@forked_loopback()
def test_a_controlled_run_tells_its_level(tmp_path: Path) -> None:
    """Gains of 90 % a step do not happen: the share falls and is put back, and all pages show it."""
    task = load_task("digits")
    record = Record(describe("a title", "a command", "loopback", {}), (), {})
    with shared_task(task) as folder:
        for codec in CODECS:
            recipe = replace(digits(), codec=codec, workers=2, steps=8, evaluations=2)
            outcome, rows = launch(recipe, task, folder, Loopback(None), lambda row: None)
            origin = describe("a title", "a command", "loopback", recipe.to_dict())
            record = Record(origin, (*record.outcomes, outcome), {**record.rows, outcome.label: rows})
    constant, guarded = record.outcomes
    assert scheduled(record)
    assert level_kind(record) == "theta"
    assert {row["theta"] for row in level_rows(record, constant)} == {0.99}
    thetas = [row["theta"] for row in level_rows(record, guarded)]
    assert thetas[:3] == [0.99, 0.495, 0.99], "on trial, and put back"
    assert guarded.report is not None
    assert guarded.report["schedule"] == "guard:window=1,patience=1,gain=0.9"
    assert guarded.bytes_per_step > 5 * constant.bytes_per_step
    write_record(tmp_path, record)
    page = write_report(record, tmp_path, picture=True).read_text()
    assert "Strength of the codec over time" in page
    assert "is no gain on" in page
    assert (tmp_path / "report.png").stat().st_size > 10_000

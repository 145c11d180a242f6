"""Recipes and the order of examples: pure values, so pure tests."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thinwire.errors import LabError
from thinwire_lab.data import LOADERS
from thinwire_lab.data.task import ExampleOrder
from thinwire_lab.models import model_card
from thinwire_lab.run.recipe import digits, mnist, recipe_for, recipe_from_dict
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

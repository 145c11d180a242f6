"""Long runs that another command recorded: the setting with the most seeds is judged, beside float."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thinwire.lab.claims.ledger import find_claim
from thinwire.lab.claims.papers.cifar_accuracy import FILE
from thinwire.lab.claims.settled import settle


def write(folder: Path, accuracies: dict[tuple[str, int], float], lr: float = 0.1) -> None:
    with (folder / FILE).open("a") as file:
        for (codec, seed), accuracy in accuracies.items():
            recipe = {"codec": codec, "seed": seed, "lr": lr}
            result = {"accuracy": accuracy, "bytes_per_step": 10.0, "dense_bytes_per_step": 80.0}
            file.write(json.dumps({"settings": {"recipe": recipe}, "result": result}) + "\n")


def verdict(folder: Path, id: str = "gradiveq-accuracy") -> str:
    return settle(find_claim(id), folder).judgement.verdict


@pytest.mark.parametrize(("accuracy", "word"), [(0.797, "reproduced"), (0.793, "partly"), (0.7, "refuted")])
def test_the_mean_difference_decides(tmp_path: Path, accuracy: float, word: str) -> None:
    write(tmp_path, {("ddp", seed): 0.8 for seed in range(3)})
    write(tmp_path, {("gradiveq:4", seed): accuracy for seed in range(2)})
    assert verdict(tmp_path) == word
    assert verdict(tmp_path, "fft-accuracy").startswith("open")


def test_seeds_of_two_settings_do_not_add_up(tmp_path: Path) -> None:
    write(tmp_path, {("ddp", 0): 0.8, ("ddp", 1): 0.8, ("gradiveq:4", 0): 0.8, ("gradiveq:8", 1): 0.8})
    assert verdict(tmp_path).startswith("open: 1 seed of 2")
    write(tmp_path, {("gradiveq:8", 0): 0.7})
    settled = settle(find_claim("gradiveq-accuracy"), tmp_path)
    assert settled.judgement.measured.startswith("gradiveq:8: -5.00 ± 7.07 points")


def test_runs_of_another_recipe_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, {("ddp", 0): 0.8, ("gradiveq:4", 0): 0.8, ("gradiveq:4", 1): 0.8}, lr=0.3)
    write(tmp_path, {("ddp", 0): 0.8, ("ddp", 1): 0.8})
    assert verdict(tmp_path).startswith("open: run thinwire compare cifar10-study")

"""Long runs that another command recorded: the setting with the most seeds is judged, beside float."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thinwire_lab.claims.papers.accuracy import FILE, GRADIVEQ_CODEC
from thinwire_lab.claims.registry import find_claim, judge_claim


def write(folder: Path, accuracies: dict[tuple[str, int], float], lr: float = 0.1) -> None:
    with (folder / FILE).open("a") as file:
        for (codec, seed), accuracy in accuracies.items():
            recipe = {"codec": codec, "seed": seed, "lr": lr}
            result = {"accuracy": accuracy, "bytes_per_step": 10.0, "dense_bytes_per_step": 80.0}
            file.write(json.dumps({"settings": {"recipe": recipe}, "result": result}) + "\n")


def verdict(folder: Path, id: str) -> str:
    return judge_claim(find_claim(id), folder).judgement.verdict


@pytest.mark.parametrize(
    ("id", "codec", "accuracy", "word"),
    [
        ("terngrad-accuracy", "terngrad", 0.79, "reproduced"),
        ("terngrad-accuracy", "terngrad", 0.775, "partly"),
        ("gradiveq-accuracy", GRADIVEQ_CODEC, 0.797, "partly: by short cycles and a memory, which the paper"),
        ("fft-accuracy", "fft:0.85", 0.797, "partly: by a residual memory, which the paper"),
        ("fft-accuracy", "fft:0.85", 0.793, "partly"),
        ("fft-accuracy", "fft:0.85", 0.7, "refuted"),
    ],
)
def test_the_mean_difference_decides(tmp_path: Path, id: str, codec: str, accuracy: float, word: str) -> None:
    write(tmp_path, {("ddp", seed): 0.8 for seed in range(3)})
    write(tmp_path, {(codec, seed): accuracy for seed in range(2)})
    assert verdict(tmp_path, id).startswith(word)
    others = {"terngrad-accuracy", "gradiveq-accuracy", "fft-accuracy"} - {id}
    assert all(verdict(tmp_path, other).startswith("open") for other in others)


def test_other_settings_of_the_codec_do_not_count(tmp_path: Path) -> None:
    """The claim is about what its command runs, not about the best that was found."""
    write(tmp_path, {("ddp", 0): 0.8, ("ddp", 1): 0.8, ("fft:0.85", 0): 0.8, ("fft:0.5", 1): 0.8})
    assert verdict(tmp_path, "fft-accuracy").startswith("open: 1 seed of 2")
    write(tmp_path, {("fft:0.5", 0): 0.8, ("fft:0.85", 1): 0.7})
    judged = judge_claim(find_claim("fft-accuracy"), tmp_path)
    assert judged.judgement.measured.startswith("fft:0.85: -5.00 ± 7.07 points")
    assert '"ddp,fft:0.85"' in judged.claim.command


def test_runs_of_another_recipe_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, {("ddp", 0): 0.8, ("terngrad", 0): 0.8, ("terngrad", 1): 0.8}, lr=0.3)
    write(tmp_path, {("ddp", 0): 0.8, ("ddp", 1): 0.8})
    assert verdict(tmp_path, "terngrad-accuracy").startswith("open: run thinwire compare cifar10-study")

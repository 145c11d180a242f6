"""Small runs of the studies: what they measure has the size that arithmetic demands."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from thinwire_lab.claims.claim import ClaimStudy, Result
from thinwire_lab.claims.gradient_studies import (
    COMPARED,
    SHARES,
    SLICE,
    Basis,
    CompressedGradients,
    ConvolutionGradients,
    TernaryGradients,
    errors,
)
from thinwire_lab.claims.training_studies import Trainings
from thinwire_lab.run.recipe import Recipe

RECIPE = Recipe("digits", "digits-cnn", epochs=1, steps=20, batch=16, lr=0.05, workers=2, evaluations=1)


def perform(study: ClaimStudy) -> Result:
    [run] = study.runs(0)
    result = study.perform(run, None, lambda *_: None)
    assert "/" not in "".join(str(value) for value in run.settings.values())  # no path of this machine
    assert json.loads(json.dumps(result)) == result
    return result


def test_a_training() -> None:
    result = perform(Trainings([RECIPE]))
    assert result["steps"] == 20
    assert 0.1 < result["accuracy"] <= 1
    assert result["bytes_per_step"] < result["dense_bytes_per_step"]
    assert result["losses"][-1][0] == 20


def test_a_training_on_few_examples_overfits_them() -> None:
    few = perform(Trainings([replace(RECIPE, steps=60)], examples=64))
    assert few["losses"][-1][1] < 0.1
    assert few["test_loss"] > few["losses"][-1][1] + 0.1


def test_ternary_gradients() -> None:
    result = perform(TernaryGradients(RECIPE, ("conv2.weight", "fc1.weight")))
    assert [moment["moment"] for moment in result["moments"]] == ["early", "middle", "late"]
    for moment in result["moments"]:
        assert moment["errors"]["one scale"] >= moment["errors"]["own scales"]
        for layer in moment["layers"].values():
            assert layer["levels"]["ternary"] == 3
            assert 3 <= layer["levels"]["averaged"] <= 5  # 2N + 1
            assert sum(map(bool, layer["histograms"]["ternary"])) == 3


def test_expected_error_of_one_scale_and_of_many() -> None:
    """Two layers of trits: own scales send them without an error, one scale does not."""
    layers = {"a": torch.tensor([1.0, -1.0]), "b": torch.tensor([2.0, -2.0])}
    found = errors(layers)
    assert found["own scales, no clipping"] == 0
    assert found["one scale, no clipping"] == pytest.approx((((2 * 2 + 2 * 4) - 10) / 10) ** 0.5, rel=1e-4)


def test_convolution_gradients() -> None:
    study = ConvolutionGradients(RECIPE, begin=2, learn=4, ages=(1, 5))
    [layer] = perform(study)["layers"].values()
    assert layer["slices"] == 4 * 64 * 32 * 9 // SLICE
    aged = (*layer["by_age"].values(), *layer["fresh_by_age"].values())
    for energies in (*aged, layer["other_slices"], layer["same_slices"], layer["shuffled"]):
        shares = list(energies.values())
        assert shares == sorted(shares)
        assert len(shares) == len(SHARES)
        assert 0 <= shares[0] <= shares[-1] <= 1
    assert layer["by_age"]["1"] == layer["fresh_by_age"]["1"]


def test_captured_energy_of_slices_of_low_rank_is_all() -> None:
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(8, SLICE, generator=generator)
    samples = torch.randn(500, 8, generator=generator) @ basis
    assert min(Basis.of(samples).captured(samples).values()) == pytest.approx(1, abs=1e-4)
    white = torch.randn(20_000, SLICE, generator=generator)
    assert Basis.of(white[0::2]).captured(white[1::2])["0.125"] == pytest.approx(0.125, abs=0.03)


def test_compressed_gradients() -> None:
    result = perform(CompressedGradients(("digits",), steps=20))
    for moment in result["moments"]:
        assert {error["method"] for error in moment["errors"]} == set(COMPARED)
        assert all(error["error"] > 0 for error in moment["errors"] if error["method"] != "dense")
        assert {own["bits"] for own in moment["formats"]} == {8, 10, 16}


def test_data_that_is_missing_is_named(tmp_path: Path) -> None:
    study = Trainings([Recipe("mnist", "lenet", epochs=1, steps=1, batch=1, lr=0.1)])
    with pytest.raises(Exception, match="does not exist"):
        study.perform(study.runs(0)[0], tmp_path / "none", lambda *_: None)

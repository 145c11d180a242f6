"""Studies: recorded gradients, fits to equal bits, what explains errors, number formats, the commands."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire.tensors import Layout, Spec
from thinwire_lab.study.errors import (
    FORMATS,
    MethodError,
    bin_energies,
    captured_in_frequency,
    captured_in_place,
    cast,
    find_errors,
    lag1,
    measure_formats,
    power_of_two,
    uniform,
)
from thinwire_lab.study.findings import duels, markdown, verdict
from thinwire_lab.study.methods import (
    METHODS,
    Snapshot,
    fit_method,
    passed_through,
    planned_bits,
    read_methods,
    relative_error,
)
from thinwire_lab.study.subject import MOMENTS, WINDOW, read_subjects, record

STEPS = 60


@cache
def digits() -> tuple[Snapshot, ...]:
    [subject] = read_subjects("digits", STEPS, seed=0)
    return tuple(record(subject, None))


def made(x: Tensor) -> Snapshot:
    """A snapshot of one made-up tensor."""
    layout = Layout.packed([Spec("x", tuple(x.shape))])
    return Snapshot("made", "early", 1, 1, 0.0, layout, x.flatten(), (), ())


def ar1(rho: float, numel: int = 1 << 17) -> Tensor:
    """x_i = rho x_(i-1) + noise, as its moving average cut where it no longer matters."""
    noise = torch.randn(numel, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x, weight = noise.clone(), 1.0
    for lag in range(1, 200):
        weight *= rho
        x[lag:] += weight * noise[:-lag]
    return x.float()


# recording


def test_moments_and_windows() -> None:
    early, middle, late = digits()
    assert [snapshot.moment for snapshot in digits()] == list(MOMENTS)
    assert [snapshot.step for snapshot in digits()] == [3, 30, 57]
    assert [len(snapshot.before) for snapshot in digits()] == [2, 29, WINDOW]
    assert early.loss > late.loss
    assert middle.layout.names == ("conv2.weight", "fc1.weight")
    assert set(middle.dense_names) >= {"conv1.weight", "fc2.weight", "fc1.bias"}
    assert not torch.equal(late.before[-1], late.gradient)


def test_recording_is_reproducible() -> None:
    [subject] = read_subjects("digits", STEPS, seed=0)
    again = next(record(subject, None))
    assert torch.equal(again.gradient, digits()[0].gradient)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("nothing", "unknown task 'nothing'"),
        ("digits:zip", "unknown model 'zip'"),
        ("digits,digits", "digits digits-cnn twice"),
        (" , ", "no task named"),
    ],
)
def test_wrong_subjects(text: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        read_subjects(text, STEPS, 0)


def test_short_run_is_refused() -> None:
    [subject] = read_subjects("digits", 5, seed=0)
    with pytest.raises(LabError, match="at least 20"):
        next(record(subject, None))


def test_cifarnet_has_its_own_settings() -> None:
    resnet, cifarnet = read_subjects("cifar10,cifar10:cifarnet", STEPS, seed=0)
    assert (resnet.recipe.optimizer, cifarnet.recipe.optimizer) == ("sgd", "adam")


def test_a_run_that_does_not_learn_is_warned_of() -> None:
    finding = find_errors(made(ar1(0.0, 1 << 13)), read_methods("fft,topk"), (2.0,))
    assert "WARNING" in verdict([replace(finding, loss=2.3), replace(finding, loss=2.2)])
    assert "WARNING" not in verdict([replace(finding, loss=2.3), replace(finding, loss=1.5)])


# fits


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("target", [1.6, 2.0, 4.0])
def test_fits_meet_their_targets_or_say_their_own_bits(name: str, target: float) -> None:
    late = digits()[-1]
    own = fit_method(METHODS[name], late.layout, target, len(late.before))
    if name == "terngrad":
        assert own.bits == pytest.approx(1.6, rel=0.01)
        assert own.meets == (target == 1.6)
    elif name.startswith("qsgd"):
        assert own.bits == pytest.approx(max(2.0, target), rel=0.05)
        assert own.meets == (target >= 2)
    else:
        assert own.bits == pytest.approx(target, rel=0.02)
        assert own.meets


@pytest.mark.parametrize("name", METHODS)
def test_more_bits_err_less(name: str) -> None:
    window = 20
    late = replace(digits()[-1], before=digits()[-1].before[-window:])
    rungs = [fit_method(METHODS[name], late.layout, target, window) for target in (2.0, 6.0)]
    found = [
        relative_error(late.gradient, passed_through(own.codec, late, window * METHODS[name].learns))
        for own in rungs
    ]
    if name == "terngrad":
        assert found[0] == found[1]
    else:
        assert rungs[0].bits < rungs[1].bits
        assert found[1] < found[0]
        assert found[1] < 1


def test_dense_is_exact_and_has_32_bits() -> None:
    late = digits()[-1]
    assert planned_bits("dense", late.layout) == 32
    assert torch.equal(passed_through("dense", late), late.gradient)


def test_gradiveq_learns_in_the_window() -> None:
    """Gradients in a subspace that the window shows are sent almost exactly in few coordinates."""
    generator = torch.Generator().manual_seed(0)
    basis = torch.randn(4, 256, generator=generator)
    gradients = [(torch.randn(200, 4, generator=generator) @ basis).flatten() for _ in range(6)]
    snapshot = replace(made(gradients[0].view(200, 256)), gradient=gradients[0], before=tuple(gradients[1:]))
    codec = METHODS["gradiveq"].text(15, 5)
    assert relative_error(snapshot.gradient, passed_through(codec, snapshot, 5)) < 1e-3


def test_unknown_method() -> None:
    with pytest.raises(LabError, match='no method "zip"'):
        read_methods("fft,zip")
    assert [method.name for method in read_methods("all")] == list(METHODS)


# what explains errors


def test_white_noise_does_not_compress_in_frequency() -> None:
    x = ar1(0.0)
    assert lag1(x) == pytest.approx(0, abs=0.01)
    assert captured_in_frequency(x) == pytest.approx(0.431, abs=0.01)
    assert captured_in_frequency(x, chunk=4096) == pytest.approx(0.431, abs=0.01)
    assert captured_in_place(x) == pytest.approx(0.559, abs=0.01)


@pytest.mark.parametrize(("rho", "better"), [(0.3, False), (0.7, True), (0.9, True)])
def test_correlated_neighbours_do(rho: float, better: bool) -> None:
    x = ar1(rho)
    assert lag1(x) == pytest.approx(rho, abs=0.02)
    assert (captured_in_frequency(x) > captured_in_place(x)) == better


@pytest.mark.parametrize("numel", [1, 2, 7, 8, 4097])
def test_bins_hold_all_energy(numel: int) -> None:
    x = torch.randn(numel, dtype=torch.float64, generator=torch.Generator().manual_seed(numel)) + 1
    energies = bin_energies(x)
    assert energies.numel() == numel // 2 + 1
    assert float(energies.sum()) == pytest.approx(float(x.square().sum()))


def test_a_last_short_chunk_counts() -> None:
    x = torch.cat([torch.full((8,), 1e-3), torch.ones(5)])
    assert captured_in_frequency(x, keep=1 / 8, chunk=8) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(("rho", "fft_errs_less"), [(0.0, False), (0.9, True)])
def test_fft_beats_topk_only_on_correlated_neighbours(rho: float, fft_errs_less: bool) -> None:
    finding = find_errors(made(ar1(rho)), read_methods("fft,topk"), (2.0,))
    fft, topk = (error.error for error in finding.errors)
    assert (fft < topk) == fft_errs_less
    [duel] = duels([finding])
    assert duel.wins == int(fft_errs_less)
    assert ("does not hold" in verdict([finding])) != fft_errs_less
    [layer] = finding.layers
    assert layer.errors == pytest.approx({"fft": fft, "topk": topk})


def test_missed_targets_are_compared_with_nobody() -> None:
    finding = find_errors(made(ar1(0.0, 1 << 13)), read_methods("fft,terngrad"), (4.0,))
    fft, terngrad = finding.errors
    assert fft.meets
    assert not terngrad.meets
    assert duels([finding]) == []
    assert "nothing to compare" in verdict([finding])


# formats


def test_fp8_saturates_and_underflows() -> None:
    x = torch.tensor([1000.0, 1.0, 1e-6, 0.0])
    rounded, top = cast(torch.float8_e4m3fn, scaled=False)(x)
    assert top == 448
    assert rounded.tolist() == [448.0, 1.0, 0.0, 0.0]
    rounded, top = cast(torch.float8_e4m3fn, scaled=True)(x)
    assert top >= 1000
    assert rounded[0] == pytest.approx(1000, rel=1 / 16)


def test_scale_is_the_largest_power_of_two_that_fits() -> None:
    for peak in (1e-7, 0.3, 448.0, 449.0):
        scale = power_of_two(torch.tensor([peak, -peak / 3]), 448.0)
        assert math.log2(scale).is_integer()
        assert peak * scale <= 448 < 2 * peak * scale * (1 + 1e-6)


def test_uniform_error_is_at_most_half_a_step() -> None:
    x = torch.linspace(-1, 1, 1001)
    rounded, top = uniform(8)(x)
    assert top == 1
    assert float((rounded - x).abs().max()) <= 0.5 / 127 + 1e-6
    assert len(rounded.unique()) == 255


def test_formats_on_a_gradient() -> None:
    late = digits()[-1]
    found = {(error.format, error.bits): error for error in measure_formats(late)}
    assert found.keys() == {(own.name, own.bits) for own in FORMATS}
    for bits in (8, 10, 16):
        assert found["rangefloat", bits].error < found["rangefloat", 8].error * 1.001
        assert found["rangefloat", bits].error <= 2.0 ** -(bits - 5)
    assert found["e4m3", 8].underflow > found["e4m3 scaled", 8].underflow
    assert found["fp16", 16].error < found["bf16", 16].error


# tables and rows


def test_markdown() -> None:
    assert markdown((["a", "b"], [["x", "1"]])) == "| a | b |\n| --- | ---: |\n| x | 1 |"


def test_rows_are_json() -> None:
    finding = find_errors(digits()[0], read_methods("terngrad"), (1.6,))
    assert [row["row"] for row in finding.rows()] == ["snapshot", "error", "layer", "layer"]
    json.dumps(finding.rows())
    assert isinstance(finding.errors[0], MethodError)

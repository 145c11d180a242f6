"""PCA of slices: G1, G2, the energy kept, the order of a slice's elements, rows as slices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from sliced import CODEC, CYCLE, LT, SPECS, D, M, P, engine_after, low_rank, true_mean

import thinwire as tw
from simulation import Gradients, Simulation, assert_ranks_agree, gaussian, same_bits, specs_of
from thinwire.codecs.stage import OWNED, owner
from thinwire.tensors import Spec


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5])
def test_decoding_the_sum_is_projecting_the_mean(world: int) -> None:
    """G1: mean_i Q(g_i) = U U^T (mean g - mu) + mu."""
    source = low_rank(SPECS, noise=1.0)
    simulation = Simulation(CODEC, SPECS, world)
    for engine, means in engine_after(simulation, source, LT + 2):
        for step in (LT, LT + 1):
            expected = true_mean(source, step, world)
            for spec in SPECS[:3]:
                known = engine.learned[spec.name]
                flat, basis, mean = (
                    expected[spec.name].flatten().double(),
                    known["basis"].double(),
                    known["mean"].double(),
                )
                count = spec.numel // M
                rows = flat[: count * M].view(count, M)
                rows.copy_((rows - mean) @ basis @ basis.t() + mean)
                torch.testing.assert_close(
                    means[step][spec.name].flatten().double(), flat, rtol=1e-5, atol=1e-5
                )


def test_the_basis_holds_the_leading_eigenvectors() -> None:
    """G2: orthonormal; captured energy = sum of the d leading eigenvalues of the samples' covariance."""
    source = low_rank(SPECS, noise=1.0)
    engine, means = engine_after(Simulation(CODEC, SPECS, 2), source, LT + 1)[0]
    for spec in SPECS[:3]:
        known, count = engine.learned[spec.name], spec.numel // M
        samples = torch.cat(
            [means[t][spec.name].flatten()[: count * M].view(count, M) for t in range(LT)]
        ).double()
        basis = known["basis"].double()
        torch.testing.assert_close(basis.t() @ basis, torch.eye(D).double(), rtol=0, atol=1e-5)
        torch.testing.assert_close(known["mean"].double(), samples.mean(0), rtol=1e-5, atol=1e-5)
        values = torch.linalg.eigvalsh(torch.cov(samples.t(), correction=0)).flip(0)
        assert float(known["energy"]) == pytest.approx(float(values[:D].sum() / values.sum()), rel=1e-5)
        captured = ((samples - samples.mean(0)) @ basis).square().sum() / len(samples)
        assert float(captured) == pytest.approx(float(values[:D].sum()), rel=1e-5)
        peaks = basis.gather(0, basis.abs().argmax(0, keepdim=True))
        assert bool((peaks > 0).all())


@pytest.mark.parametrize("chain", ["", ",energy=0.999999"])
def test_low_rank_gradients_come_back_whole(chain: str) -> None:
    """G2: slices in a space of d dimensions (and a mean) lose nothing."""
    specs = specs_of({"a": (16, 4, 8), "b": 40 * M})
    source = low_rank(specs)
    engine, means = engine_after(Simulation(CODEC + chain, specs, 3), source, CYCLE + LT + P)[0]
    for step, found in enumerate(means):
        for name, mean in true_mean(source, step, 3).items():
            torch.testing.assert_close(found[name], mean, rtol=0, atol=2e-5 * float(mean.abs().max()) + 1e-6)
    assert all(float(engine.learned[spec.name]["energy"]) > 0.999999 for spec in specs)


def test_d_equal_to_m_loses_nothing() -> None:
    """G2: with ratio 1 the basis is complete."""
    simulation = Simulation(f"gradiveq:1,slice={M},sample=2,compress=2", SPECS, 2)
    source = gaussian(SPECS)
    for step, found in enumerate(simulation.run(source, steps=4)[0]):
        for name, mean in true_mean(source, step, 2).items():
            torch.testing.assert_close(found[name], mean, rtol=0, atol=1e-5)


def test_all_ranks_hold_the_same_basis() -> None:
    """G3, bit by bit; sums are kept by the owner alone."""
    engines = [engine for engine, _ in engine_after(Simulation(CODEC, SPECS, 3), gaussian(SPECS), LT + 1)]
    for spec in SPECS[:3]:
        for engine in engines[1:]:
            for what in ("basis", "mean", "energy", "channel"):
                assert same_bits(engine.learned[spec.name][what], engines[0].learned[spec.name][what])
        sums = f"{OWNED}memory square"
        holders = [rank for rank, engine in enumerate(engines) if engine.learned[spec.name][sums].any()]
        assert holders == [owner(spec.name, 3)]


def test_energy_lowers_d() -> None:
    """The fewest eigenvectors that hold the share, agreed on by all; fewer bytes than the plan's most."""
    specs = specs_of({"x": 64 * M})
    source = low_rank(specs, rank=3, noise=0.01)
    simulation = Simulation(f"gradiveq:2,slice={M},sample=4,compress=2,energy=0.95", specs, 2)
    for engine, _ in engine_after(simulation, source, 6):
        known = engine.learned["x"]
        assert int(known["width"]) <= 3
        assert float(known["energy"]) >= 0.95
        assert engine.plan.step_bytes(step=5, learned=engine.learned) < engine.plan.step_bytes(step=5) / 4


def test_auto_takes_the_order_that_drops_less() -> None:
    """Channels that are copies of each other (or places that are) decide for one order or the other."""
    spec = Spec("conv", (64, 16, 4, 4))

    def alike(axis: int) -> Any:
        def source(step: int, rank: int) -> Gradients:
            generator = torch.Generator().manual_seed(step)
            shape = [64, 16, 16]
            shape[axis] = 1
            made = torch.randn(shape, generator=generator).expand(64, 16, 16)
            return {"conv": made.reshape(spec.shape).clone()}

        return source

    codec = "gradiveq:16,slice=16,sample=3,compress=2,order={}"
    for axis, expected in ((1, 1.0), (2, 0.0)):
        engine, means = engine_after(Simulation(codec.format("auto"), (spec,), 2), alike(axis), 5)[0]
        assert float(engine.learned["conv"]["channel"]) == expected
        assert float(engine.learned["conv"]["energy"]) > 0.99999
        torch.testing.assert_close(means[4]["conv"], alike(axis)(4, 0)["conv"], rtol=0, atol=1e-4)
        wrong = codec.format("memory" if expected else "channel")
        engine, _ = engine_after(Simulation(wrong, (spec,), 2), alike(axis), 5)[0]
        assert float(engine.learned["conv"]["energy"]) < 0.3


def test_large_tensors_are_sampled_in_turns() -> None:
    """Every stride-th slice in a step; in `stride` steps all of them."""
    specs = specs_of({"x": 64 * 8 * M})
    simulation = Simulation(f"gradiveq:4,slice={M},sample=16,compress=2,stride=4", specs, 1)
    engine, means = engine_after(simulation, gaussian(specs), 4)[0]
    known = engine.learned["x"]
    assert float(known[f"{OWNED}memory count"]) == 512
    expected = sum(means[t]["x"].view(-1, M)[t::4].double().sum(0) for t in range(4))
    torch.testing.assert_close(known[f"{OWNED}memory sum"], expected)


ROWS = "gradiveq:4,slice=row,sample=3,compress=4,stride=1,layers=all"
ROW_SPECS = specs_of({"conv": (32, 4, 3, 3), "fc": (50, 30)})


def test_a_slice_can_be_a_row() -> None:
    """Rows of the tensor's matrix against PCA written anew: d = M / ratio, rounded down, tensor by tensor."""
    source = gaussian(ROW_SPECS)
    engine, means = engine_after(Simulation(ROWS, ROW_SPECS, 2), source, 4)[0]
    for spec in ROW_SPECS:
        rows, width = spec.numel // spec.shape[0], spec.numel // spec.shape[0] // 4
        samples = torch.cat([means[step][spec.name].view(-1, rows) for step in range(3)]).double()
        _, vectors = torch.linalg.eigh(torch.cov(samples.t(), correction=0))
        basis, mu = vectors[:, -width:], samples.mean(0)
        expected = (true_mean(source, 3, 2)[spec.name].view(-1, rows).double() - mu) @ basis @ basis.t() + mu
        torch.testing.assert_close(
            means[3][spec.name].view(-1, rows).double(), expected, rtol=1e-4, atol=1e-4
        )
        assert engine.learned[spec.name]["basis"].shape == (rows, width)


@pytest.mark.parametrize("options", ["", ",order=auto", ",energy=0.5", ",start=2", " >> ternary"])
def test_rows_with_every_option(options: str) -> None:
    simulation = Simulation(ROWS + options, ROW_SPECS, 3)
    assert_ranks_agree(simulation.run(gaussian(ROW_SPECS), 9))


@pytest.mark.parametrize(
    ("shape", "reason"),
    [
        ((64, 1031), "rows, or equal pieces of them, of 1 elements are shorter than the ratio"),
        ((64, 5), "rows, or equal pieces of them, of 5 elements are shorter than the ratio"),
        ((512, 4096), None),
    ],
)
def test_rows_that_do_not_fit_stay_dense(shape: tuple[int, ...], reason: str | None) -> None:
    assert tw.parse("gradiveq:8,slice=row,layers=all").refuses(Spec("w", shape)) == reason


def test_the_energy_kept_while_compressing_is_reported() -> None:
    """1 - ||g - U U^T (g - mu) - mu||^2 / ||g||^2 of this rank's gradient, in a step that is measured."""
    source, simulation = low_rank(SPECS, noise=1.0), Simulation(CODEC, SPECS, 2)
    for rank, (engine, _) in enumerate(engine_after(simulation, source, LT + 2)):
        for spec in SPECS[:3]:
            g, known = source(LT + 1, rank)[spec.name].flatten().double(), engine.learned[spec.name]
            rows = g[: spec.numel // M * M].view(-1, M)
            basis, mu = known["basis"].double(), known["mean"].double()
            lost = rows - mu - (rows - mu) @ basis @ basis.t()
            kept = 1 - float(lost.square().sum() / g.square().sum())
            assert engine.statistics.layers[spec.name].tallies["kept"] == pytest.approx(kept, abs=1e-5)

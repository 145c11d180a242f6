"""GradiVeQ: properties G1, G2, G3, its phases, its bytes and its state."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from simulation import Gradients, Simulation, assert_ranks_agree, assert_same, gaussian, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.gradiveq import GradiVeQ
from thinwire.codecs.stage import OWNED, owner
from thinwire.errors import CodecError, StateError
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout, Spec

M, D, LT, P = 32, 8, 3, 4
CODEC = f"gradiveq:4,slice={M},sample={LT},compress={P},stride=1"
SPECS = specs_of({"conv": (16, 12, 3, 3), "second": (8, 20, 3, 3), "odd": 1000, "bias": 7})
CYCLE = LT + P
CHAINS = ["", " >> bf16", " >> fp16", " >> ternary", " >> terngrad:scales=own", " >> clip:3 >> ternary"]
OPTIONS = ["", ",order=channel", ",order=auto", ",energy=0.6", ",order=auto,energy=0.9"]
VARIANTS = (
    [("", chain) for chain in CHAINS]
    + [(options, "") for options in OPTIONS[1:]]
    + [(OPTIONS[-1], CHAINS[3])]
)


def low_rank(specs: tuple[Spec, ...], rank: int = D, noise: float = 0.0, mean: float = 0.5) -> Any:
    """Gradients whose slices lie in a space of few dimensions, the same in every step and on every rank."""
    axes = torch.randn(rank, M, generator=torch.Generator().manual_seed(7))
    offset = mean * torch.randn(M, generator=torch.Generator().manual_seed(8))

    def source(step: int, rank_: int) -> Gradients:
        generator = torch.Generator().manual_seed(1009 * step + rank_)
        made = {}
        for spec in specs:
            count = -(-spec.numel // M)
            rows = torch.randn(count, rank, generator=generator) @ axes + offset
            rows += noise * torch.randn(count, M, generator=generator)
            made[spec.name] = rows.flatten()[: spec.numel].view(spec.shape)
        return made

    return source


def true_mean(source: Any, step: int, world: int) -> Gradients:
    parts = [source(step, rank) for rank in range(world)]
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


def engine_after(simulation: Simulation, source: Any, steps: int) -> list[tuple[Engine, list[Gradients]]]:
    def work(group: ThreadGroup) -> tuple[Engine, list[Gradients]]:
        engine = simulation.engine(group)
        return engine, [simulation.step(engine, source(step, group.rank)) for step in range(steps)]

    return run_ranks(simulation.world, work)


@pytest.mark.parametrize(("options", "chain"), VARIANTS)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_all_ranks_end_with_the_same_bits(world: int, options: str, chain: str) -> None:
    """D1, over a cycle and a half, whatever the coder behind it is."""
    simulation = Simulation(CODEC + options + chain, SPECS, world)
    means = simulation.run(low_rank(SPECS, noise=0.3), steps=CYCLE + LT + 2)
    assert_ranks_agree(means)
    assert all(bool(torch.isfinite(t).all()) for step in means[0] for t in step.values())


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


def test_the_tail_travels_as_it_is() -> None:
    """G3: n mod M elements behind the last slice are exact in every phase."""
    source = gaussian(SPECS)
    tail = 1000 % M
    for step, found in enumerate(Simulation(CODEC, SPECS, 2).run(source, steps=CYCLE)[0]):
        expected = true_mean(source, step, 2)["odd"]
        torch.testing.assert_close(found["odd"][-tail:], expected[-tail:], rtol=0, atol=1e-6)
        whole = torch.allclose(found["odd"], expected, atol=1e-5)
        assert whole == (step < LT)


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


def test_the_schedule() -> None:
    """G3: Lt sample steps, one refresh, p - 1 projections, and again."""
    stage = GradiVeQ(ratio=4, slice=M, sample=LT, compress=P)
    kinds = [stage.phase(step).split()[0] for step in range(2 * CYCLE)]
    assert kinds == (["sample"] * LT + ["refresh"] + ["project"] * (P - 1)) * 2
    with_energy = GradiVeQ(ratio=4, slice=M, sample=LT, compress=P, energy=0.9)
    assert [with_energy.phase(step).split()[0] for step in range(LT)] == ["sample", "sample", "choose"]


def test_the_effective_ratio() -> None:
    """G3: (Lt + p) / (Lt + p d / M), but for the basis that is sent once a cycle."""
    plan = Plan.of(Policy.of("gradiveq:8", ()), Model((Spec("x", (6_553_600,)),)), 4)
    cycle = sum(count * plan.step_bytes(step=step) for step, count in ((0, 100), (100, 1), (101, 399)))
    basis = plan.step_bytes(step=100) - plan.step_bytes(step=101)
    assert plan.step_bytes(step=101) * 8 == plan.dense_bytes
    assert basis == 2 * 3 * 4 * -(-(256 * 33 + 2) // 4)
    assert (cycle - basis) * (100 + 400) / (100 + 400 / 8) == pytest.approx(
        500 * 500 * plan.dense_bytes / 500
    )
    assert 500 * plan.dense_bytes / cycle == pytest.approx(3.333, rel=1e-3)


@pytest.mark.parametrize(("options", "chain"), VARIANTS)
def test_bytes_are_exactly_as_planned_in_every_phase(options: str, chain: str) -> None:
    simulation = Simulation(CODEC + options + chain, SPECS, 3, buckets=(("odd", "bias"), ("second", "conv")))
    source = low_rank(SPECS, noise=0.3)

    def work(group: ThreadGroup) -> None:
        engine = simulation.engine(group)
        for step in range(2 * CYCLE):
            planned = engine.plan.step_bytes(simulation.layouts, engine.finite_steps, engine.learned)
            if "energy" not in options:
                assert planned == simulation.plan.step_bytes(simulation.layouts, step)
            before = dict(engine.group.bytes)
            known = len(engine.lanes)
            simulation.step(engine, source(step, group.rank))
            compared = 32 * (group.size - 1) * (len(engine.lanes) - known)
            assert engine.group.total_bytes - sum(before.values()) == planned + compared, f"step {step}"

    run_ranks(3, work)


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


@pytest.mark.parametrize("codec", [CODEC, CODEC + ",order=auto", CODEC + " >> bf16"])
def test_parts_do_not_change_the_result(codec: str) -> None:
    """The pipeline: slice groups one behind the other give what one piece gives."""
    source = low_rank(SPECS, noise=0.3)

    def run(part_numel: int | None) -> tuple[list[Gradients], int]:
        def work(group: ThreadGroup) -> tuple[list[Gradients], int]:
            simulation = Simulation(codec, SPECS, 3)
            engine = Engine(simulation.plan, group, torch.device("cpu"), part_numel=part_numel)
            means = [simulation.step(engine, source(step, group.rank)) for step in range(CYCLE)]
            return means, max(len(lane.parts) for lanes in engine.lanes for lane in lanes)

        return run_ranks(3, work)[0]

    (whole, one), (cut, several) = run(None), run(500)
    assert one == 1
    assert several > 3
    for a, b in zip(whole, cut, strict=True):
        for name in a:
            torch.testing.assert_close(a[name], b[name], rtol=1e-5, atol=1e-5)


def saved(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize(
    ("codec", "memory"),
    [(CODEC, None), (CODEC + ",order=auto,energy=0.7", "residual"), (CODEC + " >> ternary", None)],
)
def test_resuming_in_any_phase_gives_the_same_bits(codec: str, memory: str | None) -> None:
    """One run that saves in every phase, both ways; and a resumed run from each of its states."""
    simulation = Simulation(codec, SPECS, 3, memory=memory)
    source, last = low_rank(SPECS, noise=0.3), 2 * CYCLE

    def work(group: ThreadGroup) -> None:
        engine, states, expected = simulation.engine(group), [], []
        for step in range(last):
            if step in (1, LT - 1, LT, LT + 1, CYCLE, CYCLE + 1):
                states += [(step, saved(made(engine))) for made in (local_state, gathered_state)]
            expected.append(simulation.step(engine, source(step, group.rank)))
        for stop, state in states:
            fresh = simulation.engine(group)
            load_state(fresh, state)
            for step in range(stop, last):
                assert_same(simulation.step(fresh, source(step, group.rank)), expected[step])

    run_ranks(3, work)


@pytest.mark.parametrize("new_world", [1, 2, 4])
@pytest.mark.parametrize("stop", [2, LT, LT + 2])
def test_a_changed_world_goes_on_with_the_same_samples(stop: int, new_world: int) -> None:
    """Owners change; the samples go to the new ones, and the basis is that of all samples."""
    source = low_rank(SPECS, noise=0.3)

    def state_of(group: ThreadGroup) -> dict[str, Any]:
        simulation = Simulation(CODEC, SPECS, 3)
        engine = simulation.engine(group)
        for step in range(stop):
            simulation.step(engine, source(step, group.rank))
        return saved(gathered_state(engine))

    state = run_ranks(3, state_of)[0]
    simulation = Simulation(CODEC, SPECS, new_world)

    def work(group: ThreadGroup) -> tuple[dict[str, bool], Tensor]:
        engine = simulation.engine(group)
        load_state(engine, state)
        held = {n: bool(engine.learned[n][f"{OWNED}memory count"].any()) for n in ("conv", "second", "odd")}
        for step in range(stop, CYCLE):
            simulation.step(engine, source(step, group.rank))
        return held, engine.learned["odd"]["basis"]

    ranks = run_ranks(new_world, work)
    for name in ("conv", "second", "odd"):
        assert [rank for rank, (held, _) in enumerate(ranks) if held[name]] == [owner(name, new_world)]
    assert all(same_bits(basis, ranks[0][1]) for _, basis in ranks)
    whole = torch.linalg.svdvals(ranks[0][1].double())
    torch.testing.assert_close(whole, torch.ones(D).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "other", ["gradiveq:8,slice=32", "gradiveq:4,slice=64", "gradiveq:4,slice=32,sample=9"]
)
def test_another_m_or_d_is_refused(other: str) -> None:
    group = ThreadGroup.make(1)[0]
    state = local_state(Simulation("gradiveq:4,slice=32", SPECS, 1).engine(group))
    with pytest.raises(StateError, match="another model or codec"):
        load_state(Simulation(other, SPECS, 1).engine(group), state)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("at", [0, LT - 1, LT, LT + 1])
def test_a_bad_step_is_no_sample_and_leaves_no_trace(bad: float, at: int) -> None:
    """Non-finite in any phase: that tensor is non-finite on all ranks, phases wait, and the run goes on."""
    simulation = Simulation(CODEC, SPECS, 2, buckets=(("odd", "bias"), ("second", "conv")))
    source = low_rank(SPECS, noise=0.1)

    def work(group: ThreadGroup) -> tuple[list[Gradients], int]:
        engine, means = simulation.engine(group), []
        for step in range(2 * CYCLE):
            gradients = source(step, group.rank)
            if step == at and group.rank == 1:
                gradients["conv"][2, 3, 1, 1] = bad
            means.append(simulation.step(engine, gradients))
        return means, engine.finite_steps

    (first, steps), (second, _) = run_ranks(2, work)
    assert_ranks_agree([first, second])
    finite = math.isfinite(bad)
    assert steps == 2 * CYCLE - (not finite)
    assert bool(torch.isfinite(first[at]["conv"]).all()) == finite
    for step, means in enumerate(first):
        if step != at and not finite:
            expected = true_mean(source, step, 2)
            assert all((means[n] - expected[n]).norm() < 0.3 * expected[n].norm() for n in ("conv", "odd"))


def test_what_was_dropped_is_kept_and_flushed() -> None:
    """memory="residual": E2, the residual grows while compressed and is gone after a sample step."""
    source = gaussian(SPECS)
    simulation = Simulation(CODEC, SPECS, 2, memory="residual")

    def work(group: ThreadGroup) -> tuple[list[float], Tensor, Tensor]:
        engine, norms = simulation.engine(group), []
        sent = torch.zeros(1000)
        true = torch.zeros(1000)
        for step in range(CYCLE + 1):
            sent += simulation.step(engine, source(step, group.rank))["odd"]
            true += true_mean(source, step, 2)["odd"]
            norms.append(float(engine.memories["residual"].state()["residual"]["odd"].norm()))
        return norms, sent, true

    for norms, sent, true in run_ranks(2, work):
        assert max(norms[:LT]) < 1e-4
        assert norms[LT] > 10
        assert all(norm < math.sqrt(1000) * P for norm in norms)
        assert norms[CYCLE] < 1e-4
        torch.testing.assert_close(sent, true, rtol=0, atol=1e-4)


def test_the_flush_is_no_sample() -> None:
    """The first mean behind a compressed phase carries all that was held back."""
    simulation = Simulation(CODEC, SPECS, 1)
    for steps, expected in ((1, 1), (LT, LT), (CYCLE + 1, 0), (CYCLE + LT, LT - 1)):
        engine, _ = engine_after(simulation, gaussian(SPECS), steps)[0]
        count = float(engine.learned["odd"][f"{OWNED}memory count"])
        assert count == expected * (1000 // M)


def test_the_loss_scale_does_not_matter() -> None:
    """GradScaler: what was learnt under one scale is right under another."""
    source = low_rank(SPECS, noise=0.2)
    engine = Simulation(CODEC, SPECS, 1).engine(ThreadGroup.make(1)[0])
    plain = Simulation(CODEC, SPECS, 1).run(source, steps=CYCLE)[0]
    for step in range(CYCLE):
        unit = 2.0 ** (16 - step)
        scaled = {name: unit * gradient for name, gradient in source(step, 0).items()}
        found = Simulation(CODEC, SPECS, 1).step(engine, scaled, unit)
        for name in found:
            torch.testing.assert_close(found[name] / unit, plain[step][name], rtol=1e-4, atol=1e-5)


def test_large_tensors_are_sampled_in_turns() -> None:
    """Every stride-th slice in a step; in `stride` steps all of them."""
    specs = specs_of({"x": 64 * 8 * M})
    simulation = Simulation(f"gradiveq:4,slice={M},sample=16,compress=2,stride=4", specs, 1)
    engine, means = engine_after(simulation, gaussian(specs), 4)[0]
    known = engine.learned["x"]
    assert float(known[f"{OWNED}memory count"]) == 512
    expected = sum(means[t]["x"].view(-1, M)[t::4].double().sum(0) for t in range(4))
    torch.testing.assert_close(known[f"{OWNED}memory sum"], expected)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gradiveq:0.5", "between 1 and slice=256"),
        ("gradiveq:512", "between 1 and slice=256"),
        ("gradiveq:nan", "between 1 and slice"),
        ("gradiveq:7", "must divide slice=256"),
        ("gradiveq:8,slice=0", "slice=0 must be at least 1"),
        ("gradiveq:8,sample=0", "sample=0 must be at least 1"),
        ("gradiveq:8,compress=0", "compress=0 must be at least 1"),
        ("gradiveq:8,stride=0", "stride=0 must be at least 1"),
        ("gradiveq:8,energy=0", "above 0 and at most 1"),
        ("gradiveq:8,energy=1.5", "above 0 and at most 1"),
        ("gradiveq:8,energy=0.9,sample=1", "energy needs sample=2"),
        ("gradiveq:8,order=left", '"memory", "channel" or "auto"'),
        ("gradiveq:eight", "a number of at least 1"),
        ("clip >> gradiveq:8", "must be the first link"),
    ],
)
def test_bad_options(text: str, words: str) -> None:
    with pytest.raises(CodecError, match=words):
        tw.parse(text)


@pytest.mark.parametrize(
    ("shape", "options", "words"),
    [
        ((64, 64), "", "fully connected"),
        ((100,), "", "shorter than a slice of 256"),
        ((4, 3, 3, 3), "", "shorter than a slice of 256"),
        ((300,), ",compress=1", "costs more than it saves"),
        ((64, 64), ",layers=all", None),
        ((16, 16, 3, 3), "", None),
        ((6_553_600,), "", None),
    ],
)
def test_what_stays_dense(shape: tuple[int, ...], options: str, words: str | None) -> None:
    reason = tw.parse("gradiveq:8" + options).refuses(Spec("x", shape))
    assert (reason is None) if words is None else (reason is not None and words in reason)


def test_how_chains_merge() -> None:
    assert tw.parse("gradiveq:8").merge is Merge.SUM
    assert tw.parse("gradiveq:8 >> bf16").merge is Merge.SUM
    assert tw.parse("gradiveq:8 >> ternary").merge is Merge.INT
    assert tw.parse("gradiveq:8 >> terngrad:scales=own").merge is Merge.GATHER
    assert tw.parse("gradiveq:8").memory == "none"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes(dtype: torch.dtype) -> None:
    specs = specs_of({"x": 64 * M}, dtype)
    source = low_rank(specs)
    cast = lambda step, rank: {n: g.to(dtype) for n, g in source(step, rank).items()}  # noqa: E731
    means = Simulation(CODEC, specs, 2).run(cast, steps=CYCLE)
    assert_ranks_agree(means)
    for step, found in enumerate(means[0]):
        expected = true_mean(source, step, 2)["x"]
        assert (found["x"].float() - expected).norm() < 0.02 * expected.norm()
    layout = Layout.packed(specs)
    plan = Simulation(CODEC, specs, 2).plan
    size = 2 if dtype.itemsize == 2 else 4
    assert plan.step_bytes([layout]) == 64 * M * size


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


def test_every_phase_is_measured() -> None:
    """A cycle as long as the time between two measurements would only ever show the sampling phase."""
    codec, specs = "gradiveq:4,slice=32,sample=2,compress=3", SPECS[:1]
    group = ThreadGroup.make(1)[0]
    simulation = Simulation(codec, specs, 1)
    engine = Engine(simulation.plan, group, torch.device("cpu"), error_every=5)
    for step in range(3):
        simulation.step(engine, gaussian(specs)(step, 0))
        assert ("kept" in engine.statistics.layers["conv"].tallies) == (step == 2)

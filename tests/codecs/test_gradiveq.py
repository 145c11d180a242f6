"""GradiVeQ: property G3, its phases, its bytes, what it takes and what it refuses."""

from __future__ import annotations

import pytest
import torch
from sliced import CODEC, CYCLE, LT, SPECS, M, P, low_rank, true_mean

import thinwire as tw
from simulation import Gradients, Simulation, assert_ranks_agree, gaussian, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.gradiveq import GradiVeQ
from thinwire.errors import CodecError
from thinwire.exchange.engine import Engine
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout, Spec

CHAINS = ["", " >> bf16", " >> fp16", " >> ternary", " >> terngrad:scales=own", " >> clip:3 >> ternary"]
OPTIONS = ["", ",order=channel", ",order=auto", ",energy=0.6", ",order=auto,energy=0.9"]
VARIANTS = (
    [("", chain) for chain in CHAINS]
    + [(options, "") for options in OPTIONS[1:]]
    + [(OPTIONS[-1], CHAINS[3])]
)


@pytest.mark.parametrize(("options", "chain"), VARIANTS)
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_all_ranks_end_with_the_same_bits(world: int, options: str, chain: str) -> None:
    """D1, over a cycle and a half, whatever the coder behind it is."""
    simulation = Simulation(CODEC + options + chain, SPECS, world)
    means = simulation.run(low_rank(SPECS, noise=0.3), steps=CYCLE + LT + 2)
    assert_ranks_agree(means)
    assert all(bool(torch.isfinite(t).all()) for step in means[0] for t in step.values())


def test_the_tail_travels_as_it_is() -> None:
    """G3: n mod M elements behind the last slice are exact in every phase."""
    source = gaussian(SPECS)
    tail = 1000 % M
    for step, found in enumerate(Simulation(CODEC, SPECS, 2).run(source, steps=CYCLE)[0]):
        expected = true_mean(source, step, 2)["odd"]
        torch.testing.assert_close(found["odd"][-tail:], expected[-tail:], rtol=0, atol=1e-6)
        whole = torch.allclose(found["odd"], expected, atol=1e-5)
        assert whole == (step < LT)


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
    assert tw.parse("gradiveq:8").feedback == "none"


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


def test_every_phase_is_measured() -> None:
    """A cycle as long as the time between two measurements would only ever show the sampling phase."""
    codec, specs = "gradiveq:4,slice=32,sample=2,compress=3", SPECS[:1]
    group = ThreadGroup.make(1)[0]
    simulation = Simulation(codec, specs, 1)
    engine = Engine(simulation.plan, group, torch.device("cpu"), error_every=5)
    for step in range(3):
        simulation.step(engine, gaussian(specs)(step, 0))
        assert ("kept" in engine.statistics.layers["conv"].tallies) == (step == 2)

"""DGC: the warm-up schedule, exact bytes in every phase, momentum memory in the engine, resuming."""

from __future__ import annotations

import functools
import io
import itertools
from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from simulation import (
    Gradients,
    Simulation,
    assert_ranks_agree,
    assert_same,
    gaussian,
    held,
    same_bits,
    specs_of,
)
from thinwire.codecs.topk import DGC
from thinwire.errors import CodecError
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.thread import ThreadGroup, run_ranks

SPECS = specs_of({"conv": (8, 27), "norm": 8, "fc": (37, 53)})
SOURCE = gaussian(SPECS)
CODEC = "dgc:0.01,warmup=5"


def test_the_schedule_of_the_paper() -> None:
    ratios = [DGC(warmup=50).phase(step) for step in range(60)]
    assert ratios == ["0.25"] * 10 + ["0.063"] * 10 + ["0.015"] * 10 + ["0.004"] * 10 + ["0.001"] * 20
    assert [DGC(ratio=0.05, warmup=5).phase(step) for step in range(6)] == ["0.25", "0.063"] + ["0.05"] * 4
    assert DGC(warmup=0).phase(0) == "0.001"
    assert [DGC(warmup=2).phase(step) for step in range(3)] == ["0.25", "0.015", "0.001"]


@pytest.mark.parametrize("text", ["dgc:0", "dgc:2", "dgc:warmup=-1", "dgc:warmup=1.5", "dgc:chunk=-1"])
def test_bad_texts(text: str) -> None:
    with pytest.raises(CodecError):
        tw.parse(text)


def test_it_is_topk_with_momentum_memory() -> None:
    assert tw.parse("dgc:0.001").feedback == "momentum"
    specs = specs_of({"w": (50, 40)})
    dgc = Simulation("dgc:0.01,warmup=0", specs, 3).run(gaussian(specs), steps=4)
    topk = Simulation("topk:0.01", specs, 3, feedback="momentum").run(gaussian(specs), steps=4)
    for a, b in zip(dgc[0], topk[0], strict=True):
        assert_same(a, b)
    other = Simulation("topk:0.01", specs, 3, feedback="momentum:0.5").run(gaussian(specs), steps=4)
    assert same_bits(dgc[0][0]["w"], other[0][0]["w"])
    assert not same_bits(dgc[0][3]["w"], other[0][3]["w"])


@pytest.mark.parametrize("world", [1, 3])
def test_planned_bytes_are_metered_bytes_in_every_phase(world: int) -> None:
    simulation = Simulation("dgc:0.01,warmup=10", SPECS, world, buckets=(("fc",), ("norm", "conv")))

    def work(group: ThreadGroup) -> list[int]:
        engine, totals = simulation.engine(group), []
        for step in range(12):
            before = engine.group.total_bytes
            simulation.step(engine, SOURCE(step, group.rank))
            totals.append(engine.group.total_bytes - before)
        return totals

    planned = [simulation.plan.step_bytes(simulation.layouts, step) for step in range(12)]
    switches = {0, 2, 4, 6}  # a new phase: lanes are compared once for each bucket
    for totals in run_ranks(world, work):
        expected = [
            sent + (2 * 32 * (world - 1) if step in switches else 0) for step, sent in enumerate(planned)
        ]
        assert totals == expected
    if world > 1:
        assert planned[0] > 3 * planned[2] > 6 * planned[6]
        assert len(set(planned)) == 4


def test_a_skipped_step_does_not_count_for_the_schedule() -> None:
    """Steps whose mean is not finite leave memory and phase as they were, on all ranks alike."""

    def work(group: ThreadGroup) -> tuple[list[Gradients], list[str], bool]:
        simulation = Simulation(CODEC, SPECS, 2)
        engine, phases, unchanged = simulation.engine(group), [], True
        for step in range(4):
            gradients = dict(SOURCE(step, group.rank))
            before = held(engine.feedbacks["momentum"])
            if step == 1 and group.rank == 1:
                gradients["fc"][2, 3] = torch.inf
            phases.append(engine.plan.phases(engine.finite_steps)[0])
            mean = simulation.step(engine, gradients)
            after = held(engine.feedbacks["momentum"])
            if step == 1:
                assert not torch.isfinite(mean["fc"]).all()
                unchanged = all(same_bits(before[n], after[n]) for n in before)
        return [], phases, unchanged

    for _, phases, unchanged in run_ranks(2, work):
        assert phases == ["0.25", "0.063", "0.063", "0.015"]
        assert unchanged


@pytest.mark.parametrize("world", [1, 3])
def test_e2_everything_is_sent_in_the_end(world: int) -> None:
    """N * sum of means = sum of all velocities - what is unsent; velocities by an independent recurrence."""
    simulation = Simulation("dgc:0.05,warmup=0", SPECS, world, feedback="momentum:0.7")
    steps = 8

    def work(group: ThreadGroup) -> tuple[list[Gradients], Gradients, Gradients]:
        engine, means = simulation.engine(group), []
        total = {spec.name: torch.zeros(spec.numel).double() for spec in SPECS}
        u = {spec.name: torch.zeros(spec.numel) for spec in SPECS}
        for step in range(steps):
            gradients = SOURCE(step, group.rank)
            means.append(simulation.step(engine, gradients))
            for name in total:
                total[name] += 0.7 * u[name] + gradients[name].flatten()
                u[name] = engine.feedbacks["momentum:factor=0.7"].state()["velocity"][name]
        return means, total, held(engine.feedbacks["momentum:factor=0.7"])

    ranks = run_ranks(world, work)
    for spec in SPECS:
        sent = world * sum(means[spec.name].double().flatten() for means in ranks[0][0])
        given = sum(total[spec.name] for _, total, _ in ranks)
        kept = sum(state["unsent " + spec.name].double() for _, _, state in ranks)
        torch.testing.assert_close(sent, given - kept, rtol=1e-5, atol=1e-5)


def saved(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def steps(sim: Simulation, engine: Engine, first: int, last: int) -> list[Gradients]:
    return [sim.step(engine, SOURCE(step, engine.group.rank)) for step in range(first, last)]


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("feedback", [None, "momentum:0.8,nesterov=on,clip=3"])
def test_resuming_gives_the_same_bits(world: int, gather: bool, feedback: str | None) -> None:
    """In the middle of the warm-up, and a step after a phase switch."""
    sim = Simulation(CODEC, SPECS, world, feedback=feedback)
    expected = sim.run(SOURCE, steps=7)
    assert_ranks_agree(expected)

    def first_half(group: ThreadGroup) -> dict[str, Any]:
        engine = sim.engine(group)
        steps(sim, engine, 0, 3)
        return saved((gathered_state if gather else local_state)(engine))

    given = run_ranks(world, first_half)

    def second_half(group: ThreadGroup) -> list[Gradients]:
        engine = sim.engine(group)
        load_state(engine, given[0 if gather else group.rank])
        return steps(sim, engine, 3, 7)

    for rank, means in enumerate(run_ranks(world, second_half)):
        for a, b in zip(expected[rank][3:], means, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("new_world", [1, 2, 5])
def test_a_changed_world_keeps_the_sums(new_world: int) -> None:
    sim = Simulation(CODEC, SPECS, 3)

    def before(group: ThreadGroup) -> dict[str, Any]:
        engine = sim.engine(group)
        steps(sim, engine, 0, 3)
        return saved(gathered_state(engine))

    state = run_ranks(3, before)[0]

    def after(group: ThreadGroup) -> dict[str, Tensor]:
        other = sim.but(world=new_world)
        engine = other.engine(group)
        load_state(engine, state)
        kept = held(engine.feedbacks["momentum"])
        steps(other, engine, 3, 5)
        return kept

    ranks = run_ranks(new_world, after)
    for what, name in itertools.product(("velocity", "unsent"), [spec.name for spec in SPECS]):
        old = sum(rank["momentum"][what][name] for rank in state["ranks"])
        new = sum(rank[f"{what} {name}"] for rank in ranks)
        torch.testing.assert_close(new, old, rtol=1e-5, atol=1e-6)
        assert old.abs().sum() > 0


def train(codec: str, momentum: float) -> float:
    """300 steps on a least-squares problem, 3 workers; `momentum` is the optimizer's. Distance left, of 1."""
    specs = specs_of({"w": 40})
    data = torch.randn(3, 60, 40, generator=torch.Generator().manual_seed(0))
    target = torch.linspace(-1, 1, 40)
    simulation = Simulation(codec, specs, 3)

    def work(group: ThreadGroup) -> Tensor:
        engine, w, velocity = simulation.engine(group), torch.zeros(40), torch.zeros(40)
        x = data[group.rank]
        for _ in range(300):
            mean = simulation.step(engine, {"w": x.T @ (x @ (w - target)) / 60})["w"]
            velocity = momentum * velocity + mean
            w = w - 0.01 * velocity
        return w

    return (run_ranks(3, work)[0] - target).norm().item() / target.norm().item()


def test_momentum_is_worth_having_once() -> None:
    """Its own momentum takes DGC much further than none; a second one on top of it diverges."""
    assert train("dense", 0.9) < 1e-5
    without, once = train("topk:0.1", 0.0), train("dgc:0.1,warmup=50", 0.0)
    assert once < without / 4
    assert train("dgc:0.1,warmup=50", 0.9) > 1


@functools.cache
def sent_per_step(ratio: float, schedule: str | None = None, feedback: str = "momentum") -> float:
    """What is sent of a constant gradient of ones in a step, on average over the second half of 400."""
    sim = Simulation(f"dgc:{ratio},warmup=0", specs_of({"a": 200}), 1, feedback=feedback, schedule=schedule)
    ones = {"a": torch.ones(200)}

    def work(group: ThreadGroup) -> float:
        engine = sim.engine(group)
        means = [sim.step(engine, ones)["a"] for _ in range(400)]
        return float(torch.stack(means[200:]).mean())

    return run_ranks(1, work)[0]


def test_masking_costs_step_length_where_much_is_sent() -> None:
    """The published algorithm, as in its warm-up: momentum SGD would send 10."""
    sent = {ratio: sent_per_step(ratio) for ratio in (0.01, 0.063, 0.25, 1.0)}
    assert sent == pytest.approx({0.01: 9.1, 0.063: 5.4, 0.25: 2.25, 1.0: 1.0}, rel=0.05)
    assert sent_per_step(1.0, feedback="momentum:mask=off") == pytest.approx(10, rel=1e-3)


@pytest.mark.parametrize("level", [0.9, 0.5, 0.25, 0.0])
def test_easing_does_not_shorten_the_steps(level: float) -> None:
    """A control that makes dgc gentler must not lower the learning rate at the same time."""
    assert 0.99 * sent_per_step(0.01) <= sent_per_step(0.01, f"steps:0={level}") <= 10.1

"""PowerSGD: what it reconstructs, what it keeps back, its bytes and its state."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import thinwire as tw
from simulation import (
    Gradients,
    Simulation,
    assert_ranks_agree,
    assert_same,
    gaussian,
    same_bits,
    specs_of,
    sum_of,
)
from thinwire.codecs.coder import Merge
from thinwire.codecs.powersgd import BoundLowRank, first_right
from thinwire.errors import CodecError
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.base import all_reduce_bytes
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.tensors import Spec

SPECS = specs_of({"conv": (24, 8, 3, 3), "fc": (40, 30), "bias": 30, "tiny": (3, 3)})
MATRICES = ("conv", "fc")


def rank_r(specs: tuple[Spec, ...], rank: int, fixed: bool) -> Any:
    """Gradients whose sum over the ranks has rank `rank` as a matrix; fixed: the same in every step."""

    def source(step: int, worker: int) -> Gradients:
        made = {}
        for index, spec in enumerate(specs):
            space = torch.Generator().manual_seed(index + (0 if fixed else 100 * step))
            rows = spec.shape[0]
            left = torch.randn(rows, rank, generator=space)
            right = torch.randn(
                rank, spec.numel // rows, generator=torch.Generator().manual_seed(worker + 50 * index)
            )
            made[spec.name] = (left @ right).view(spec.shape)
        return made

    return source


def mean_of(source: Any, step: int, world: int) -> Gradients:
    parts = [source(step, rank) for rank in range(world)]
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


@pytest.mark.parametrize("fixed", [True, False])
@pytest.mark.parametrize("world", [1, 3])
def test_matrices_of_that_rank_come_back(world: int, fixed: bool) -> None:
    """P spans the columns of a matrix of rank r, so P P^T M = M, in the first step and with a warm start."""
    source = rank_r(SPECS, 2, fixed)
    means = Simulation("powersgd:2", SPECS, world, feedback="none").run(source, steps=4)
    for step, found in enumerate(means[0]):
        for name, expected in mean_of(source, step, world).items():
            torch.testing.assert_close(found[name], expected, rtol=0, atol=1e-4)


def test_the_warm_start_finds_the_leading_directions() -> None:
    """On a constant gradient steps are power iterations: the error comes down to the least possible one."""
    generator = torch.Generator().manual_seed(0)
    u, v = (torch.linalg.qr(torch.randn(60, 60, generator=generator))[0] for _ in range(2))
    matrix = u @ torch.diag(0.7 ** torch.arange(60.0)) @ v
    best = float(torch.linalg.svdvals(matrix)[4:].norm())
    specs = specs_of({"m": (60, 60)})
    means = Simulation("powersgd:4", specs, 2, feedback="none").run(
        lambda step, rank: {"m": matrix}, steps=12
    )
    errors = [float((found["m"] - matrix).norm()) for found in means[0]]
    assert errors[0] > 1.1 * best
    assert best * 0.9999 < errors[-1] < 1.01 * best


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "codec", ["powersgd:2", "powersgd:1,start=2", "powersgd:2 >> bf16", "powersgd:2 >> ternary"]
)
def test_all_ranks_end_with_the_same_bits(codec: str, world: int) -> None:
    """D1."""
    simulation = Simulation(codec, SPECS, world, buckets=(("tiny", "fc"), ("bias",), ("conv",)))
    assert_ranks_agree(simulation.run(gaussian(SPECS), steps=5))


@pytest.mark.parametrize("world", [1, 3])
def test_error_feedback_telescopes(world: int) -> None:
    """E2: sum of sent = sum of gradients - e_T, and e stays bounded; the error is the rank's own."""
    source, steps = gaussian(SPECS), 30
    simulation = Simulation("powersgd:2", SPECS, world)
    assert simulation.plan.entries[0].feedback == "residual"

    def work(group: ThreadGroup) -> tuple[Gradients, Gradients]:
        engine = simulation.engine(group)
        sent = {spec.name: torch.zeros(spec.shape) for spec in SPECS}
        for step in range(steps):
            for name, mean in simulation.step(engine, source(step, group.rank)).items():
                sent[name] += mean
        return sent, engine.feedbacks["residual"].state()["residual"]

    ranks = run_ranks(world, work)
    for name in MATRICES:
        kept = torch.stack([residual[name] for _, residual in ranks]).mean(0)
        true = sum_of(mean_of(source, step, world)[name] for step in range(steps))
        torch.testing.assert_close(ranks[0][0][name].flatten() + kept, true.flatten(), rtol=0, atol=1e-3)
        size = math.sqrt(kept.numel())
        assert all(float(residual[name].norm()) < 20 * size for _, residual in ranks)


def test_the_error_is_local() -> None:
    """e_i = M_i - P Y_i^T with the rank's own Y_i: P^T e_i = 0."""
    simulation = Simulation("powersgd:2", SPECS, 3)

    def work(group: ThreadGroup) -> None:
        engine = simulation.engine(group)
        simulation.step(engine, gaussian(SPECS)(0, group.rank))
        kept = engine.feedbacks["residual"].state()["residual"]["fc"].view(40, 30)
        (left,) = [
            stage.left[lane.layout.names.index("fc")]
            for lanes in engine.lanes
            for lane in lanes
            for stage in lane.bound.stages
            if "fc" in lane.layout.names and isinstance(stage, BoundLowRank)
        ]
        torch.testing.assert_close(left.t() @ kept, torch.zeros(2, 30), rtol=0, atol=1e-4)
        assert float(kept.norm()) > 1

    run_ranks(3, work)


@pytest.mark.parametrize("buckets", [None, (("fc", "conv"), ("tiny", "bias"))])
def test_bytes_are_exactly_as_planned(buckets: Any) -> None:
    """r (rows + columns) floats each way around the ring, and the dense rest."""
    simulation = Simulation("powersgd:2,start=1", SPECS, 3, buckets=buckets)

    def work(group: ThreadGroup) -> None:
        engine = simulation.engine(group)
        for step in range(4):
            planned = simulation.plan.step_bytes(simulation.layouts, step)
            before, known = engine.group.total_bytes, len(engine.lanes)
            simulation.step(engine, gaussian(SPECS)(step, group.rank))
            compared = 32 * 2 * (len(engine.lanes) - known)
            assert engine.group.total_bytes - before == planned + compared

    run_ranks(3, work)


def test_bytes_follow_the_paper() -> None:
    specs = specs_of({"m": (400, 300)})
    plan = Simulation("powersgd:4", specs, 4).plan
    assert plan.step_bytes() == all_reduce_bytes(4 * 4 * 400, 4) + all_reduce_bytes(4 * 4 * 300, 4)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("stop", [1, 2, 4])
def test_resuming_gives_the_same_bits(stop: int, gather: bool) -> None:
    simulation, source = Simulation("powersgd:2,start=2", SPECS, 3), gaussian(SPECS)

    def work(group: ThreadGroup) -> tuple[list[Gradients], list[Gradients]]:
        engine, fresh = simulation.engine(group), simulation.engine(group)
        for step in range(stop):
            simulation.step(engine, source(step, group.rank))
        load_state(fresh, (gathered_state if gather else local_state)(engine))
        steps = range(stop, 7)
        expected = [simulation.step(engine, source(step, group.rank)) for step in steps]
        return expected, [simulation.step(fresh, source(step, group.rank)) for step in steps]

    for expected, found in run_ranks(3, work):
        for a, b in zip(expected, found, strict=True):
            assert_same(a, b)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_gradient_reaches_every_rank_and_is_forgotten(bad: float) -> None:
    simulation, source = Simulation("powersgd:2", SPECS, 2), gaussian(SPECS)

    def work(group: ThreadGroup) -> list[Gradients]:
        engine, means = simulation.engine(group), []
        for step in range(4):
            gradients = source(step, group.rank)
            if step == 1 and group.rank == 1:
                gradients["fc"][3, 4] = bad
            means.append(simulation.step(engine, gradients))
        return means

    ranks = run_ranks(2, work)
    assert_ranks_agree(ranks)
    for step, means in enumerate(ranks[0]):
        for name, mean in means.items():
            assert bool(torch.isfinite(mean).all()) == (step != 1 or name != "fc")


def test_zeros_stay_zeros_and_are_no_dead_end() -> None:
    """A zero gradient gives a zero mean; Q keeps its directions, so that the next gradient is seen."""
    simulation = Simulation("powersgd:2", SPECS, 2, feedback="none")
    full = rank_r(SPECS, 2, fixed=True)

    def source(step: int, rank: int) -> Gradients:
        return {name: gradient * (step > 1) for name, gradient in full(step, rank).items()}

    means = simulation.run(source, steps=3)[0]
    assert not any(mean.any() for step in means[:2] for mean in step.values())
    torch.testing.assert_close(means[2]["fc"], mean_of(full, 2, 2)["fc"], rtol=0, atol=1e-4)


def test_the_first_q_follows_from_the_name() -> None:
    a, b = (first_right(name, 4, 100, torch.device("cpu")) for name in ("a", "b"))
    assert same_bits(a, first_right("a", 4, 100, torch.device("cpu")))
    assert not torch.equal(a, b)
    assert -1 <= float(a.min()) < -0.9
    assert 0.9 < float(a.max()) < 1
    assert abs(float(a.mean())) < 0.1
    assert int(torch.linalg.matrix_rank(a)) == 4


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("powersgd:0", "rank=0 must be at least 1"),
        ("powersgd:4,min_ratio=0.5", "min_ratio=0.5 must be at least 1"),
        ("powersgd:4,start=-1", "start=-1 must be a number of steps"),
        ("powersgd:four", "a number of columns"),
        ("clip >> powersgd:4", "must be the first link"),
        ("gradiveq:8 >> powersgd:4", "must be the first link"),
    ],
)
def test_bad_options(text: str, words: str) -> None:
    with pytest.raises(CodecError, match=words):
        tw.parse(text)


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        ((100,), "no matrix"),
        ((), "no matrix"),
        ((0, 10), "no matrix"),
        ((4, 1000), "rank 4 is not below that of a 4 x 1000 matrix"),
        ((10, 10), "shrinks only 1.25x"),
        ((100, 100), None),
        ((16, 16, 3, 3), None),
    ],
)
def test_what_stays_dense(shape: tuple[int, ...], words: str | None) -> None:
    reason = tw.parse("powersgd:4").refuses(Spec("x", shape))
    assert (reason is None) if words is None else (reason is not None and words in reason)


def test_merge_and_memory() -> None:
    codec = tw.parse("powersgd:4")
    assert codec.merge is Merge.SUM
    assert codec.feedback == "residual"

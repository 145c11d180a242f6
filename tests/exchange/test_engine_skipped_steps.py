"""NaN and Inf in a step: the same on every rank, and no trace of the step in what is kept."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from simulation import (
    Gradients,
    Simulation,
    assert_same,
    gaussian,
    held,
    same_bits,
    specs_of,
)
from thinwire.groups.thread import ThreadGroup, run_ranks

SPECS = specs_of({"conv": (8, 3, 3, 3), "norm": 8, "fc": (37, 53), "bias": 37, "one": ()})
MIXED = {"fc": "terngrad", "conv": "terngrad:block=64", "norm": "bf16", "*": "dense"}


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("where", [0, 2])
def test_non_finite_gradients_are_non_finite_everywhere(bad: float, where: int) -> None:
    """The tensor is non-finite on every rank, the others are not; the next step is as if nothing had been."""
    source = gaussian(SPECS)

    def poisoned(step: int, rank: int) -> Gradients:
        gradients = dict(source(step, rank))
        if step == 1 and rank == where:
            gradients["fc"][3, 4] = bad
        return gradients

    simulation = Simulation(MIXED, SPECS, 3)
    means = simulation.run(poisoned, steps=3)
    clean = simulation.run(source, steps=3)[0]
    for rank, step in itertools.product(range(3), range(3)):
        for name, mean in means[rank][step].items():
            if (step, name) == (1, "fc"):
                assert not torch.isfinite(mean).all()
            else:
                assert same_bits(mean, clean[step][name])


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_step_leaves_no_trace_in_the_memory(bad: float) -> None:
    source = gaussian(SPECS)
    simulation = Simulation(
        {"fc": "terngrad", "conv": "terngrad", "*": "bf16"}, SPECS, 3, feedback="residual"
    )

    def work(group: ThreadGroup) -> tuple[Gradients, Gradients, Gradients]:
        engine = simulation.engine(group)
        feedback = engine.feedbacks["residual"]
        simulation.step(engine, source(0, group.rank))
        before = held(feedback)
        gradients = dict(source(1, group.rank))
        if group.rank == 1:
            gradients["fc"][0, 0] = bad
        simulation.step(engine, gradients)
        after = held(feedback)
        simulation.step(engine, source(2, group.rank))
        return before, after, held(feedback)

    for before, after, later in run_ranks(3, work):
        assert_same(before, after)  # of a skipped step nothing was applied: not even of the finite tensors
        assert not same_bits(after["residual conv"], later["residual conv"])
        assert all(torch.isfinite(kept).all() for kept in later.values())


@pytest.mark.parametrize("where", ["norm", "fc"])
def test_a_skipped_step_takes_back_nothing_of_any_lane(where: str) -> None:
    """A NaN in a dense lane, or in another bucket: GradScaler skips the step, so nothing of it was sent."""
    codec = {"fc": "topk:0.05", "conv": "topk:0.05", "*": "dense"}
    buckets = (("conv", "bias"), ("fc", "one"), ("norm",))
    simulation = Simulation(codec, SPECS, 3, buckets=buckets)

    def work(group: ThreadGroup) -> tuple[Gradients, Gradients, int]:
        engine, source = simulation.engine(group), gaussian(SPECS)
        simulation.step(engine, source(0, group.rank))
        before = engine.feedbacks["residual"].state()["residual"]
        gradients = dict(source(1, group.rank))
        if group.rank == 2:
            gradients[where].view(-1)[0] = math.nan
        simulation.step(engine, gradients)
        return before, engine.feedbacks["residual"].state()["residual"], engine.finite_steps

    for before, after, finite_steps in run_ranks(3, work):
        assert_same(before, after)
        assert finite_steps == 1


def test_a_nan_in_a_dense_lane_is_no_sample_and_no_step_of_a_phase() -> None:
    specs = specs_of({"conv": (64, 8, 3, 3), "bias": 64})
    text = {"conv": "gradiveq:8,slice=64,sample=2,compress=4", "bias": "dense"}
    simulation = Simulation(text, specs, 2)

    def work(group: ThreadGroup) -> tuple[float, int]:
        engine = simulation.engine(group)
        for step in range(2):
            gradients = dict(gaussian(specs)(step, group.rank))
            if step == 1 and group.rank == 0:
                gradients["bias"][3] = math.nan
            simulation.step(engine, gradients)
        return float(engine.learned["conv"]["_seen"]), engine.finite_steps

    assert run_ranks(2, work) == [(1.0, 1), (1.0, 1)]

"""Obligations of a whole exchange: every codec x legal route x world size.

On the best kernels here: that all kernels give the same bits is proved by tests/kernels, for every codec by
test_same_bits.py, and for payloads by tests/golden.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, partial

import pytest
import torch
from cases import COMPRESSED, VARIANTS, WORLDS, pairs
from torch import Tensor

import thinwire as tw
from packing import one_tensor, pack
from simulation import Gradients, Simulation, assert_ranks_agree, gaussian, specs_of
from thinwire.codecs.coder import Merge
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Spec

SPECS = specs_of({"empty": 0, "one": (), "zeros": (5, 7), "odd": 1009, "matrix": (17, 31), "row": 33})
BAD_STEP = 1
STEPS = {COMPRESSED: 5}  # two of them behind the sample phase; the bad one does not count
POISON = {"odd": math.nan, "matrix": math.inf}


@dataclass(frozen=True)
class Outcome:
    """By rank: the means of every step, and the bytes sent in it, planned and metered."""

    means: list[list[Gradients]]
    sent: list[list[tuple[int, int]]]


def gradients(step: int, rank: int, world: int) -> Gradients:
    """Normal numbers; in the bad step one NaN on the last rank and one Inf on the first."""
    found = dict(gaussian(SPECS, seed=1)(step, rank))
    found["zeros"] = torch.zeros(5, 7)
    if step == BAD_STEP and rank == world - 1:
        found["odd"][500] = POISON["odd"]
    if step == BAD_STEP and rank == 0:
        found["matrix"][3, 4] = POISON["matrix"]
    return found


@cache
def outcome(text: str, route: str, world: int) -> Outcome:
    simulation = Simulation(text, SPECS, world, route=route)
    planned = cache(partial(simulation.plan.step_bytes, simulation.layouts))

    def work(group: ThreadGroup) -> tuple[list[Gradients], list[tuple[int, int]]]:
        engine, means, sent = simulation.engine(group), [], []
        for step in range(STEPS.get(text, 3)):
            nbytes, num_layouts = planned(engine.finite_steps), len(engine.lanes)
            engine.group.bytes.clear()
            means.append(simulation.step(engine, gradients(step, group.rank, world)))
            compared = 32 * (world - 1) * (len(engine.lanes) - num_layouts)  # a new layout or phase: digests
            sent.append((nbytes + compared, engine.group.total_bytes))
        return means, sent

    ranks = run_ranks(world, work, timeout_s=300)
    return Outcome([means for means, _ in ranks], [sent for _, sent in ranks])


@dataclass(frozen=True)
class Case:
    text: str
    route: str
    world: int

    @property
    def outcome(self) -> Outcome:
        return outcome(self.text, self.route, self.world)

    def __str__(self) -> str:
        return f"{self.text}-{self.route}-{self.world}"


def ranks_end_with_the_same_bits(case: Case) -> None:
    means = case.outcome.means
    assert_ranks_agree(means)
    for spec in SPECS:
        assert means[0][0][spec.name].shape == spec.shape


def bytes_are_exactly_as_planned(case: Case) -> None:
    for sent in case.outcome.sent:
        for planned, metered in sent:
            assert metered == planned


def zeros_stay_zeros(case: Case) -> None:
    for step in case.outcome.means[0]:
        assert not step["zeros"].any()


def nan_and_inf_reach_every_rank_and_nothing_else(case: Case) -> None:
    """The poisoned tensors are non-finite, the others are not, and the next step is clean."""
    for rank in case.outcome.means:
        for step, means in enumerate(rank):
            for name, mean in means.items():
                poisoned = step == BAD_STEP and name in POISON
                assert bool(torch.isfinite(mean).all()) != poisoned, f"{name} in step {step}"


def the_mean_is_that_of_the_payloads(case: Case) -> None:
    """C3 on every route: what each rank's payload stands for, made by hand, and averaged in float64.

    Where owners encode that mean again it is another: tests/codecs/test_two_phase.py.
    """
    if case.route == "sharded" and tw.parse(case.text).reencodes:
        return
    expected, rounding = payload_mean(case.text, case.world)
    error = (case.outcome.means[0][0]["odd"].double() - expected).abs().max()
    assert error <= 2 * rounding * expected.abs().max() + 1e-6


@cache
def payload_mean(text: str, world: int) -> tuple[Tensor, float]:
    """The mean for one tensor in the first step, and how much of it float sums may round away."""
    codec = Policy.of(text, ()).choose(Spec("odd", (1009,)), Model(())).codec
    xs = [gradients(0, rank, world)["odd"] for rank in range(world)]
    packed = pack(codec.name, one_tensor(1009, "odd"), xs)
    mean = torch.stack([packed.own(rank, xs[0]).double() for rank in range(world)]).mean(0)
    return mean, torch.finfo(packed.codecs[0].packer.wire_dtype).eps if codec.merge is Merge.SUM else 1e-6


def worlds(text: str) -> tuple[int, ...]:
    """All of them; a few for variants."""
    return WORLDS if text not in VARIANTS else (1, 3, 8)


CASES = [Case(text, route, world) for text, route in pairs() for world in worlds(text)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_obligations(case: Case) -> None:
    """One test for all of them: they look at the same run."""
    ranks_end_with_the_same_bits(case)
    bytes_are_exactly_as_planned(case)
    zeros_stay_zeros(case)
    nan_and_inf_reach_every_rank_and_nothing_else(case)
    the_mean_is_that_of_the_payloads(case)

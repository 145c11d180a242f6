"""An engine takes another plan in the middle of a run: what was held back is sent, once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from simulation import Gradients, Simulation
from thinwire.errors import PlanError
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.tensors import Spec

SPECS = (Spec("a", (40, 50)), Spec("b", (30,)), Spec("c", (7, 300)))
WORLD = 2
CODECS = ("topk:0.02", "fft:0.9", "dct >> topk:0.1", "sign", "powersgd:1", "terngrad")


def simulation(codec: str, **options: str) -> Simulation:
    return Simulation(codec, SPECS, WORLD, buckets=(("c", "a"), ("b",)), **options)  # type: ignore[arg-type]


def gradients(step: int, rank: int) -> Gradients:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return {spec.name: torch.randn(spec.shape, generator=generator) for spec in SPECS}


def total(steps: range) -> Gradients:
    """The mean over the ranks of all gradients of some steps."""
    every = [gradients(step, rank) for step in steps for rank in range(WORLD)]
    return {spec.name: torch.stack([g[spec.name] for g in every]).sum(0) / WORLD for spec in SPECS}


def on_every_rank(work: Callable[[ThreadGroup], list[Gradients]]) -> list[list[Gradients]]:
    return run_ranks(WORLD, work)


def added(means: list[Gradients]) -> Gradients:
    return {spec.name: torch.stack([mean[spec.name] for mean in means]).sum(0) for spec in SPECS}


def close(found: Gradients, wanted: Gradients) -> bool:
    return all(torch.allclose(found[name], wanted[name], atol=2e-4) for name in wanted)


@pytest.mark.parametrize("codec", [codec for codec in CODECS if codec != "terngrad"])
def test_what_was_held_back_joins_the_next_exchange_dense_included(codec: str) -> None:
    """The means of all steps add up to the gradients of all steps: nothing is lost, nothing sent twice."""

    def work(group: ThreadGroup) -> list[Gradients]:
        before, after = simulation(codec), simulation("dense")
        engine = before.engine(group)
        means = [before.step(engine, gradients(step, group.rank)) for step in range(3)]
        engine.switch(after.plan)
        assert engine.pending_residual
        means += [after.step(engine, gradients(step, group.rank)) for step in range(3, 5)]
        assert not engine.pending_residual
        return means

    ranks = on_every_rank(work)
    assert close(added(ranks[0]), total(range(5)))
    for mine, theirs in zip(*ranks, strict=True):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("second", CODECS)
@pytest.mark.parametrize("first", CODECS)
def test_every_codec_can_follow_every_other(first: str, second: str) -> None:
    """With error feedback all the way (unbiased codecs have none) sent + held is what there was."""

    def work(group: ThreadGroup) -> list[Gradients]:
        plans = [simulation(codec, feedback="residual") for codec in (first, second, "dense")]
        engine = plans[0].engine(group)
        means = []
        for number, plan in enumerate(plans):
            if number:
                engine.switch(plan.plan)
            means += [plan.step(engine, gradients(2 * number + k, group.rank)) for k in range(2)]
        return means

    assert close(added(on_every_rank(work)[0]), total(range(6)))


def test_a_skipped_step_keeps_what_is_left() -> None:
    def work(group: ThreadGroup) -> list[Gradients]:
        before, after = simulation("topk:0.02"), simulation("dense")
        engine = before.engine(group)
        means = [before.step(engine, gradients(step, group.rank)) for step in range(3)]
        engine.switch(after.plan)
        bad = {**gradients(3, group.rank), "a": torch.full((40, 50), float("inf"))}
        after.step(engine, bad, loss_scale=8.0)  # GradScaler skips it
        scaled = {name: 4.0 * g for name, g in gradients(3, group.rank).items()}
        mean = after.step(engine, scaled, loss_scale=4.0)
        return [*means, {name: g / 4.0 for name, g in mean.items()}]

    assert close(added(on_every_rank(work)[0]), total(range(4)))


@pytest.mark.parametrize("state_of", [local_state, gathered_state])
def test_what_is_left_is_part_of_the_state(state_of: Callable[[Engine], dict[str, Tensor]]) -> None:
    def work(group: ThreadGroup) -> list[Gradients]:
        before, after = simulation("topk:0.02"), simulation("dense")
        engine = before.engine(group)
        means = [before.step(engine, gradients(step, group.rank)) for step in range(3)]
        engine.switch(after.plan)
        resumed = after.engine(group)
        load_state(resumed, state_of(engine))
        return [*means, after.step(resumed, gradients(3, group.rank))]

    assert close(added(on_every_rank(work)[0]), total(range(4)))


def test_a_memory_that_does_not_add_is_refused() -> None:
    def work(group: ThreadGroup) -> list[Gradients]:
        before = simulation("topk:0.02", feedback="ef21")
        engine = before.engine(group)
        before.step(engine, gradients(0, group.rank))
        with pytest.raises(
            PlanError, match='what error feedback "ef21" holds cannot be sent by another codec'
        ):
            engine.switch(simulation("dense").plan)
        return []

    on_every_rank(work)


def test_ranks_that_switch_to_different_plans_notice() -> None:
    def work(group: ThreadGroup) -> list[Gradients]:
        engine = simulation("dense").engine(group)
        with pytest.raises(PlanError, match="ranks disagree on their plans"):
            engine.switch(simulation(("terngrad", "sign")[group.rank]).plan)
        return []

    on_every_rank(work)


def test_phases_begin_anew_with_the_switch() -> None:
    def work(group: ThreadGroup) -> list[Gradients]:
        before, after = simulation("dense"), simulation("gradiveq:2,layers=all,slice=10,sample=2,compress=2")
        engine = before.engine(group)
        for step in range(5):
            before.step(engine, gradients(step, group.rank))
        engine.switch(after.plan)
        phases = []
        for step in range(4):
            phases.append(engine.plan.phases(engine.finite_steps, engine.learned)[0].split()[0])
            after.step(engine, gradients(step, group.rank))
        assert phases[0].startswith("sample"), phases
        assert len(set(phases)) > 1
        assert engine.step == 9
        return []

    on_every_rank(work)

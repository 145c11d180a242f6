"""Two phases: owners decode the shares they get, add up, and encode the mean again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from simulation import Simulation, gaussian, specs_of
from thinwire.codecs.two_phase import STEP, shares_of
from thinwire.errors import PlanError
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import gathered_state, load_state
from thinwire.feedback.residual import OWNER, E
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout, Spec

SPECS = specs_of({"matrix": (64, 96), "odd": 5003, "small": 300})
GATHERED = ("topk:0.05", "dgc:0.02,warmup=0", "sign", "fft:0.9", "rangefloat:8", "natural")


@pytest.mark.parametrize("world", [1, 3, 8])
@pytest.mark.parametrize("group", [1, 2])
def test_every_element_has_one_owner(world: int, group: int) -> None:
    units = Layout.packed([Spec("a", (100_000,)), Spec("b", (64,)), Spec("c", (0,))], group).units(30_000)
    shares = shares_of(units, world)
    covered = torch.zeros(units.numel, dtype=torch.int)
    for share in shares:
        covered[share.offset : share.offset + share.spec.numel] += 1
        assert share.offset - (100_000 if share.spec.name == "b" else 0) == share.start
        assert share.spec.numel % group == 0
    assert covered.eq(1).all()
    assert len({share.spec.key for share in shares}) == len(shares)  # random draws go by it


def test_owners_share_the_work_and_do_not_depend_on_buckets() -> None:
    alone = shares_of(Layout.packed([Spec("b", (1 << 20,))]), 8)
    beside = shares_of(Layout.packed([Spec("a", (5000,)), Spec("b", (1 << 20,))]), 8)
    assert [s.owner for s in alone] == [s.owner for s in beside if s.spec.name == "b"]
    assert sorted(s.owner for s in alone) == list(range(8))
    assert {s.spec.numel for s in alone} == {(1 << 20) // 8}


def run(text: str, world: int, steps: int, **options: Any) -> list[tuple[list[dict[str, Tensor]], Engine]]:
    simulation = Simulation(text, SPECS, world, route="sharded", **options)
    gradients = gaussian(SPECS, seed=3)

    def work(group: ThreadGroup) -> tuple[list[dict[str, Tensor]], Engine]:
        engine = simulation.engine(group)
        return [simulation.step(engine, gradients(step, group.rank)) for step in range(steps)], engine

    return run_ranks(world, work)


@pytest.mark.parametrize("text", ["topk:0.05", "sign", "sign:values=scaled,block=layer"])
def test_nothing_is_lost(text: str) -> None:
    """Mean of all gradients = all that was applied + the mean of the residuals + what owners hold."""
    world, steps = 4, 6
    ranks = run(text, world, steps)
    gradients = gaussian(SPECS, seed=3)
    for spec in SPECS:
        name, numel = spec.name, spec.numel
        meant = sum(gradients(s, r)[name].double().flatten() for s in range(steps) for r in range(world))
        applied = sum(step[name].double().flatten() for step in ranks[0][0])
        held = torch.zeros(numel, dtype=torch.float64)
        for _, engine in ranks:
            held += engine.feedbacks["residual"].state()[E][name].double() / world
            held += engine.feedbacks[OWNER].state()[E][name].double()
        torch.testing.assert_close(applied + held, meant / world, rtol=1e-4, atol=1e-4)


def test_an_owner_holds_its_own_shares_alone() -> None:
    ranks = run("sign", world=4, steps=3)
    held = torch.stack([engine.feedbacks[OWNER].state()[E]["matrix"] for _, engine in ranks])
    assert (held != 0).sum(0).max() == 1
    assert (held != 0).any(0).float().mean() > 0.9
    assert all((row != 0).sum() <= STEP * (-(-64 * 96 // (4 * STEP))) for row in held)


def test_three_ranks_lose_nothing_of_a_sparse_mean() -> None:
    """An owner sends back 3 k elements: as many as three ranks have chosen at most."""
    ranks = run("topk:0.02", world=3, steps=2)
    assert all(engine.feedbacks[OWNER].state()[E]["matrix"].eq(0).all() for _, engine in ranks)
    many = run("topk:0.2", world=3, steps=2)  # more than an eighth of the elements: no more than came
    assert any(engine.feedbacks[OWNER].state()[E]["matrix"].ne(0).any() for _, engine in many)


def test_an_unbiased_codec_stays_unbiased_and_holds_nothing() -> None:
    """The second rounding draws other numbers than the first: its errors average out too."""
    x = {"a": torch.linspace(-1, 1, 2048)}
    simulation = Simulation("natural", specs_of({"a": 2048}), 3, route="sharded")

    def work(group: ThreadGroup) -> tuple[Tensor, bool]:
        engine = simulation.engine(group)
        means = [simulation.step(engine, {"a": x["a"].clone()})["a"] for _ in range(400)]
        return torch.stack(means).mean(0, dtype=torch.float64), OWNER in engine.feedbacks

    (mean, holds), *_ = run_ranks(3, work)
    assert not holds
    assert (mean - x["a"]).abs().max() < 0.12
    assert (mean - x["a"]).abs().mean() < 0.02


@pytest.mark.parametrize("world", [2, 3, 6])
def test_owners_of_another_world_go_on_with_what_they_own(world: int) -> None:
    """The sum of what owners hold is kept, element by element, and given to the new owners."""
    state = _saved(4)[0]
    before = torch.stack([held[OWNER][E]["matrix"] for held in state["ranks"]]).sum(0)
    simulation = Simulation("sign", SPECS, world, route="sharded")
    gradients = gaussian(SPECS, seed=3)

    def work(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        engine = simulation.engine(group)
        load_state(engine, state)
        loaded = engine.feedbacks[OWNER].state()[E]["matrix"]
        for step in range(3, 6):
            simulation.step(engine, gradients(step, group.rank))
        return loaded, engine.feedbacks[OWNER].state()[E]["matrix"]

    ranks = run_ranks(world, work)
    assert all(torch.equal(loaded, before) for loaded, _ in ranks)
    assert (torch.stack([held for _, held in ranks]) != 0).sum(0).max() == 1


@pytest.mark.parametrize("text", ["sign", "topk:0.1"])
def test_what_owners_held_is_sent_where_there_are_no_owners(text: str) -> None:
    """4 ranks with owners, then 3 that gather, without gradients: what was held is sent or still held."""
    state = _saved(4, text)[0]
    residual, owned = (
        sum(rank[kind][E]["matrix"].double() for rank in state["ranks"]) for kind in ("residual", OWNER)
    )
    simulation = Simulation(text, SPECS, 3, route="allgather")

    def work(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        engine = simulation.engine(group)
        load_state(engine, state)
        sent = simulation.step(engine, {spec.name: torch.zeros(spec.shape) for spec in SPECS})
        return sent["matrix"].double(), engine.feedbacks["residual"].state()[E]["matrix"].double()

    ranks = run_ranks(3, work)
    held = sum(kept for _, kept in ranks) / 3
    assert owned.abs().max() > 0.1
    torch.testing.assert_close(ranks[0][0].flatten() + held, residual / 3 + owned, rtol=1e-5, atol=1e-5)


def _saved(world: int, text: str = "sign") -> list[dict[str, Any]]:
    simulation, gradients = Simulation(text, SPECS, world, route="sharded"), gaussian(SPECS, seed=3)

    def work(group: ThreadGroup) -> dict[str, Any]:
        engine = simulation.engine(group)
        for step in range(3):
            simulation.step(engine, gradients(step, group.rank))
        return gathered_state(engine)

    return run_ranks(world, work)


def test_a_skipped_step_leaves_owners_as_they_were() -> None:
    simulation, gradients = Simulation("sign", SPECS, 3, route="sharded"), gaussian(SPECS, seed=3)

    def work(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        engine = simulation.engine(group)
        simulation.step(engine, gradients(0, group.rank))
        before = engine.feedbacks[OWNER].state()[E]["odd"]
        bad = gradients(1, group.rank)
        bad["matrix"][0, 0] = float("nan")
        simulation.step(engine, bad)
        return before, engine.feedbacks[OWNER].state()[E]["odd"]

    for before, after in run_ranks(3, work):
        assert torch.equal(before, after)


@pytest.mark.parametrize("text", GATHERED)
def test_traffic_does_not_grow_with_the_workers(text: str) -> None:
    model = Model((Spec("a", (2048, 1024)), Spec("b", (1024, 1024))))
    sent = {
        world: Plan.of(Policy.of(text, keep_dense=()), model, world).step_bytes(step=100)
        for world in (2, 4, 16, 64)
    }
    assert sent[64] <= 1.6 * sent[4]
    assert sent[64] <= 1.1 * sent[16]


def test_few_workers_gather() -> None:
    model = Model((Spec("a", (256, 256)),))
    routes = {
        world: Plan.of(Policy.of("sign", keep_dense=()), model, world).entries[0].route
        for world in (1, 2, 4, 5, 8)
    }
    assert routes == {1: "allgather", 2: "allgather", 4: "allgather", 5: "sharded", 8: "sharded"}


@pytest.mark.parametrize(
    ("text", "feedback", "words"),
    [
        ("sign:block=column", None, "whole columns"),
        ("clip:2 >> topk:0.1", None, "stages that change"),
        ("sign", "ef21", "needs the mean of what all ranks sent"),
    ],
)
def test_what_cannot_be_encoded_again_is_refused_or_gathered(
    text: str, feedback: str | None, words: str
) -> None:
    model = Model((Spec("a", (256, 256)),))
    with pytest.raises(PlanError, match=words):
        Plan.of(Policy.of(text, keep_dense=()), model, 4, feedback=feedback, route="sharded")
    assert (
        Plan.of(Policy.of(text, keep_dense=()), model, 4, feedback=feedback).entries[0].route == "allgather"
    )


def test_the_codec_says_whether_it_can() -> None:
    assert all(tw.parse(text).reencodes for text in GATHERED)
    assert not tw.parse("terngrad").reencodes

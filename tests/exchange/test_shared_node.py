"""A hierarchy on threads: raw means inside nodes, an exchange between leaders, the same bits for all."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest
import torch

from simulation import CPU, Gradients, Simulation, assert_ranks_agree, assert_same, gaussian, specs_of
from thinwire.errors import PlanError, StateError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.nodes import Node, node_of
from thinwire.groups.collectives import mean_in_order
from thinwire.groups.hierarchy import Hierarchy
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.schedules.base import RECORD_BYTES, Observation
from thinwire.tensors import Scratch

T = TypeVar("T")
SPECS = specs_of({"a": (40, 33), "b": (25, 60), "c": 7})
SOURCE = gaussian(SPECS)
CODECS = ["terngrad", "topk:0.1", "powersgd:2", "sign", "gradiveq:8,sample=1,compress=3,layers=all"]


@dataclass
class Worker:
    """One rank: its node and its engine."""

    node: Node
    engine: Engine
    world: Simulation

    def step(self, gradients: Gradients) -> Gradients:
        means: Gradients = {}
        for layout in self.world.layouts:
            buffer = torch.cat([gradients[name].flatten() for name in layout.names])
            self.node.exchange(self.engine, Bucket(buffer, layout))
            for spec, piece in zip(layout.specs, layout.slices, strict=True):
                means[spec.name] = buffer[piece].view(spec.shape)
        self.node.end_step(self.engine)
        return means


def plan_of(world: Simulation, nodes: int, per_node: int) -> Plan:
    policy, model = Policy.of(world.codec, world.keep_dense), Model(world.specs)
    return Plan.of(policy, model, nodes, world.feedback, world.route, world.schedule, per_node)


def on_nodes(world: Simulation, per_node: int, work: Callable[[Worker, int], T]) -> list[T]:
    def body(group: ThreadGroup) -> T:
        hierarchy = Hierarchy(group, per_node)
        plan = plan_of(world, hierarchy.num_nodes, per_node)
        node = node_of(hierarchy, plan, CPU)
        return work(Worker(node, Engine(plan, hierarchy.leaders(), CPU, world.seed), world), group.rank)

    return run_ranks(world.world, body, timeout_s=300.0)


def means_of(world: Simulation, per_node: int, steps: int, first: int = 0) -> list[list[Gradients]]:
    return on_nodes(
        world, per_node, lambda w, rank: [w.step(dict(SOURCE(first + k, rank))) for k in range(steps)]
    )


@pytest.mark.parametrize("per_node", [2, 3])
def test_dense_is_the_mean_over_all_workers(per_node: int) -> None:
    means = means_of(Simulation("dense", SPECS, 2 * per_node), per_node, 1)
    assert_ranks_agree(means)
    for name, mean in means[0][0].items():
        wanted = torch.stack([SOURCE(0, rank)[name] for rank in range(2 * per_node)]).double().mean(0)
        torch.testing.assert_close(mean.double(), wanted, rtol=0, atol=1e-6)


@pytest.mark.parametrize("codec", CODECS)
def test_all_workers_end_with_the_bits_of_an_exchange_of_the_nodes_means(codec: str) -> None:
    means = means_of(Simulation(codec, SPECS, 4), 2, 5)
    assert_ranks_agree(means)

    def of_node(step: int, node: int) -> Gradients:
        first, second = SOURCE(step, 2 * node), SOURCE(step, 2 * node + 1)
        return {name: (first[name] + second[name]) / 2 for name in first}

    flat = Simulation(codec, SPECS, 2).run(of_node, 5)
    for mine, leaders in zip(means[3], flat[0], strict=True):
        assert_same(mine, leaders)


@pytest.mark.parametrize("codec", ["topk:0.1", "powersgd:2"])
@pytest.mark.parametrize("gather", [False, True])
def test_a_run_that_is_resumed_with_other_buckets_has_the_same_bits(codec: str, gather: bool) -> None:
    world = Simulation(codec, SPECS, 6, buckets=(("a", "c"), ("b",)))
    whole = means_of(world, 3, 5)
    states = on_nodes(world, 3, lambda w, rank: _after(w, rank, 3).node.state(w.engine, gather))

    def resumed(w: Worker, rank: int) -> list[Gradients]:
        w.node.load(w.engine, states[0 if gather else rank], strict=True)
        return [w.step(dict(SOURCE(step, rank))) for step in (3, 4)]

    for before, after in zip(whole, on_nodes(world.but(buckets=None), 3, resumed), strict=True):
        for step, mean in zip(before[3:], after, strict=True):
            assert_same(step, mean)


def _after(worker: Worker, rank: int, steps: int) -> Worker:
    for step in range(steps):
        worker.step(dict(SOURCE(step, rank)))
    return worker


def test_only_leaders_hold_something_and_gathered_states_are_equal() -> None:
    world = Simulation("topk:0.1", SPECS, 4)
    states = on_nodes(world, 2, lambda w, rank: _after(w, rank, 1).node.state(w.engine, gather=False))
    held = [bool(state["feedback"]["residual"]["residual"]) for state in states]
    assert held == [True, False, True, False]
    gathered = on_nodes(world, 2, lambda w, rank: _after(w, rank, 1).node.state(w.engine, gather=True))
    for other in gathered[1:]:
        assert_same(
            other["ranks"][1]["residual"]["residual"], gathered[0]["ranks"][1]["residual"]["residual"]
        )

    def swapped(w: Worker, rank: int) -> None:
        w.node.load(w.engine, states[rank ^ 1], strict=True)

    with pytest.raises(StateError, match=r"the state is of worker . of a node, this is worker ."):
        on_nodes(world, 2, swapped)

    def nothing(w: Worker, rank: int) -> None:
        w.node.load(w.engine, None, strict=True)  # type: ignore[arg-type]

    with pytest.raises(StateError, match="this is no state of a thinwire compressor"):
        on_nodes(world, 2, nothing)


def test_a_gathered_state_of_flat_workers_is_taken_by_leaders_alone() -> None:
    world = Simulation("topk:0.1", SPECS, 4)
    flat = on_nodes(world, 1, lambda w, rank: _after(w, rank, 2).node.state(w.engine, gather=True))[0]

    def taken(w: Worker, rank: int) -> Gradients:
        w.node.load(w.engine, flat, strict=True)
        return w.engine.feedbacks["residual"].state()["residual"]

    held = on_nodes(world, 2, taken)
    assert [bool(own) for own in held] == [True, False, True, False]
    for name in held[0]:
        of_all = torch.stack([own["residual"]["residual"][name] for own in flat["ranks"]]).sum(0)
        torch.testing.assert_close(held[0][name] + held[2][name], of_all)


@pytest.mark.parametrize("codec", ["dense", "terngrad", "topk:0.1", "powersgd:2", "fp16"])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_number_that_is_not_finite_on_any_worker_is_seen_by_all_and_the_step_is_not_believed(
    codec: str, bad: float
) -> None:
    def work(w: Worker, rank: int) -> tuple[Gradients, int, int]:
        gradients = dict(SOURCE(0, rank))
        if rank == 3:
            gradients["a"][7, 7] = bad
        return w.step(gradients), w.engine.step, w.engine.finite_steps

    results = on_nodes(Simulation(codec, SPECS, 4), 2, work)
    remembers = codec in ("topk:0.1", "powersgd:2")
    for means, step, finite in results:
        assert not torch.isfinite(means["a"]).all()
        assert (step, finite) == (1, 0 if remembers else 1)


@pytest.mark.parametrize("codec", ["terngrad", "topk:0.1"])
def test_workers_that_lead_no_node_encode_nothing_and_bytes_are_those_of_the_plan(codec: str) -> None:
    world = Simulation(codec, SPECS, 6, buckets=(("a", "c"), ("b",)))
    plan = plan_of(world, 2, 3)

    def work(w: Worker, rank: int) -> tuple[float, int, int]:
        _after(w, rank, 2)
        return w.engine.clock.seconds["encode"], w.engine.group.step_bytes, w.node.bytes_sent

    results = on_nodes(world, 3, work)
    between = 2 * plan.step_bytes(world.layouts)
    for rank, (encoding, sent, inside) in enumerate(results):
        assert (encoding > 0) == (rank % 3 == 0)
        assert sent == (between if rank % 3 == 0 else 0)
        assert inside == 2 * plan.node_bytes(rank % 3, world.layouts)
    assert "hierarchy: 2 nodes of 3 workers" in str(plan)


def test_a_control_hears_all_workers_and_all_know_what_it_decided() -> None:
    world = Simulation("topk:0.1", SPECS, 4, schedule="epochs:0=1/1=0.5")

    def work(w: Worker, rank: int) -> list[float]:
        found: list[float] = []
        for epoch in (0, 1):
            w.engine.scheduler.observe(Observation.of(epoch=epoch))
            w.step(dict(SOURCE(epoch, rank)))
            found.append(w.engine.scheduler.compression_level)
        assert w.node.bytes_sent == 2 * plan_of(world, 2, 2).node_bytes(rank % 2)
        return found

    assert on_nodes(world, 2, work) == [[1.0, 0.5]] * 4

    plan = plan_of(world, 2, 2)
    assert plan.node_bytes(1) - plan_of(world.but(schedule=None), 2, 2).node_bytes(1) == RECORD_BYTES

    def silent(w: Worker, rank: int) -> None:
        if rank != 3:
            w.engine.scheduler.observe(Observation.of(epoch=0))
        w.step(dict(SOURCE(0, rank)))

    with pytest.raises(PlanError, match="since the last step rank 2 called it once, rank 3 did not"):
        on_nodes(world, 2, silent)


def test_ranks_with_other_plans_or_other_buckets_are_refused() -> None:
    def other_plan(group: ThreadGroup) -> Node:
        world = Simulation("terngrad" if group.rank < 3 else "sign", SPECS, 4)
        return node_of(Hierarchy(group, 2), plan_of(world, 2, 2), CPU)

    with pytest.raises(PlanError, match=r"ranks disagree on their plans .* rank 0 and rank 3 differ"):
        run_ranks(4, other_plan)

    def other_bucket(w: Worker, rank: int) -> None:
        layouts = w.world.but(buckets=(("a", "b", "c") if rank < 3 else ("b", "a", "c"),))
        Worker(w.node, w.engine, layouts).step(dict(SOURCE(0, rank)))

    with pytest.raises(PlanError, match="ranks disagree on their buckets: rank 2 and rank 3 differ"):
        on_nodes(Simulation("terngrad", SPECS, 4), 2, other_bucket)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_mean_is_rounded_once(dtype: torch.dtype) -> None:
    rows = torch.randn(3, 50, generator=torch.Generator().manual_seed(1)).to(dtype)

    def work(group: ThreadGroup) -> torch.Tensor:
        numbers = rows[group.rank].clone()
        mean_in_order(group, numbers, Scratch(CPU))
        return numbers

    wide = rows if dtype == torch.float64 else rows.float()
    wanted = ((wide[0] + wide[1] + wide[2]) / 3).to(dtype)
    for mean in run_ranks(3, work):
        assert torch.equal(mean, wanted)

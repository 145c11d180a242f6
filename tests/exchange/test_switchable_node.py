"""Both ways of a hierarchy in one run: what was held back is sent, once, whoever sends next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import pytest
import torch

from simulation import CPU, Gradients, assert_ranks_agree, gaussian, specs_of
from thinwire.errors import PlanError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.nodes import SwitchableNode
from thinwire.groups.hierarchy import Hierarchy
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout

T = TypeVar("T")
SPECS = specs_of({"a": (40, 33), "b": (25, 60), "c": 7})
SOURCE = gaussian(SPECS)
LAYOUT = Layout.packed(SPECS)
WORLD, PER_NODE = 4, 2
CODECS = ("topk:0.02", "fft:0.9", "powersgd:1", "sign")


def plan_of(codec: str, by_nodes: bool, feedback: str | None = None) -> Plan:
    nodes, per_node = (WORLD // PER_NODE, PER_NODE) if by_nodes else (WORLD, 1)
    return Plan.of(Policy.of(codec, ()), Model(SPECS), nodes, feedback, per_node=per_node)


@dataclass
class Worker:
    """One rank, which begins without nodes."""

    node: SwitchableNode
    engine: Engine
    rank: int

    def step(self, number: int, bad: bool = False) -> Gradients:
        gradients = SOURCE(number, self.rank)
        buffer = torch.cat([gradients[name].flatten() for name in LAYOUT.names])
        if bad and self.rank == 3:
            buffer[0] = float("inf")
        self.node.exchange(self.engine, Bucket(buffer, LAYOUT))
        self.node.end_step(self.engine)
        pairs = zip(LAYOUT.specs, LAYOUT.slices, strict=True)
        return {spec.name: buffer[piece].view(spec.shape) for spec, piece in pairs}

    def switch(self, plan: Plan) -> None:
        self.node.switch(self.engine, plan)


def on_workers(first: Plan, work: Callable[[Worker], T]) -> list[T]:
    def body(group: ThreadGroup) -> T:
        node = SwitchableNode(Hierarchy(group, PER_NODE), CPU)
        return work(Worker(node, Engine(first, group, CPU), group.rank))

    return run_ranks(WORLD, body, timeout_s=300.0)


def assert_sent(ranks: list[list[Gradients]], steps: int) -> None:
    """The means of all steps add up to the mean gradients of all steps: nothing is lost or sent twice."""
    assert_ranks_agree(ranks)
    for spec in SPECS:
        sent = torch.stack([mean[spec.name] for mean in ranks[0]]).double().sum(0)
        every = [SOURCE(step, rank)[spec.name] for step in range(steps) for rank in range(WORLD)]
        torch.testing.assert_close(sent, torch.stack(every).double().sum(0) / WORLD, rtol=0, atol=2e-4)


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("nodes_first", [False, True])
def test_what_was_held_back_is_sent_after_a_change_of_the_way(codec: str, nodes_first: bool) -> None:
    ways = [nodes_first, not nodes_first, nodes_first]

    def work(worker: Worker) -> list[Gradients]:
        means = []
        for number, by_nodes in enumerate(ways):
            worker.switch(plan_of(codec, by_nodes, "residual"))
            means += [worker.step(2 * number + k) for k in range(2)]
        worker.switch(plan_of("dense", False))
        assert worker.node.owes(worker.engine)
        means.append(worker.step(6))
        assert not worker.node.owes(worker.engine)
        return means

    assert_sent(on_workers(plan_of("dense", False), work), 7)


@pytest.mark.parametrize("to_nodes", [False, True])
@pytest.mark.parametrize("gather", [False, True])
def test_a_state_taken_while_something_is_left_loses_nothing(to_nodes: bool, gather: bool) -> None:
    """The step behind the change is skipped by GradScaler, so what was held is still to be sent."""
    before, after = plan_of("topk:0.02", not to_nodes), plan_of("topk:0.05", to_nodes)
    dense = plan_of("dense", to_nodes)

    def begin(worker: Worker) -> tuple[list[Gradients], dict[str, object]]:
        worker.switch(before)
        means = [worker.step(step) for step in range(2)]
        worker.switch(after)
        worker.step(2, bad=True)
        return means, worker.node.state(worker.engine, gather)

    begun = on_workers(plan_of("dense", False), begin)

    def go_on(worker: Worker) -> list[Gradients]:
        worker.node.adopt(worker.engine, after)
        means, state = begun[worker.rank]
        worker.node.load(worker.engine, state, strict=True)
        assert worker.node.owes(worker.engine)
        worker.switch(dense)
        return [*means, worker.step(2)]

    assert_sent(on_workers(plan_of("dense", False), go_on), 3)


def test_leaders_alone_send_while_nodes_are_in_force_and_one_meter_counts() -> None:
    flat, nested = plan_of("terngrad", False), plan_of("terngrad", True)

    def work(worker: Worker) -> tuple[int, int, bool]:
        worker.step(0)
        sent = worker.engine.group.step_bytes
        worker.switch(nested)
        worker.step(1)
        leads = worker.node.leads
        assert worker.engine.group.step_bytes - sent == (nested.step_bytes([LAYOUT]) if leads else 0)
        worker.switch(flat)
        worker.step(2)
        assert worker.node.leads
        assert worker.engine.step == 3
        return worker.engine.group.step_bytes, worker.node.bytes_sent, leads

    for rank, (sent, inside, leads) in enumerate(on_workers(flat, work)):
        assert leads == (rank % 2 == 0)
        assert sent == 2 * flat.step_bytes([LAYOUT]) + (nested.step_bytes([LAYOUT]) if leads else 0)
        assert inside == nested.node_bytes(rank % 2, [LAYOUT])


def test_ranks_that_change_to_different_plans_notice() -> None:
    def work(worker: Worker) -> None:
        worker.switch(plan_of("terngrad" if worker.rank < 3 else "sign", by_nodes=True))

    with pytest.raises(PlanError, match="ranks disagree on their plans"):
        on_workers(plan_of("dense", False), work)

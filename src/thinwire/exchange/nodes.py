"""Nodes: what happens around an exchange among workers that share a host; nothing for one alone."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from thinwire.clock import NODE, PREPARE
from thinwire.devices import sent
from thinwire.errors import StateError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.packing import pack_state, unpack_state
from thinwire.exchange.state import (
    NotTaken,
    gathered_state,
    load_state,
    local_state,
)
from thinwire.feedback.residual import PENDING, E, PendingResidual
from thinwire.groups.base import Group, compare_digests
from thinwire.groups.collectives import mean_in_order
from thinwire.groups.hierarchy import Hierarchy
from thinwire.groups.wrappers import Metered
from thinwire.plans.plan import Plan
from thinwire.schedules.base import RECORD_BYTES, Observation, merged, read_records
from thinwire.tensors import Layout, Scratch


class Node(ABC):
    """Every worker is in one. Its leader exchanges with other leaders; all of it end with the same bits."""

    @property
    @abstractmethod
    def leads(self) -> bool:
        """Whether this worker exchanges with other nodes."""

    @property
    @abstractmethod
    def bytes_sent(self) -> int:
        """By this worker, inside of the node, in all steps."""

    @abstractmethod
    def exchange(self, engine: Engine, bucket: Bucket) -> None:
        """Replaces the gradients in a bucket by their means over all workers of all nodes."""

    @abstractmethod
    def end_step(self, engine: Engine) -> None:
        """All buckets of a step have been exchanged."""

    @abstractmethod
    def switch(self, engine: Engine, plan: Plan) -> None:
        """Another plan from the next step on, collective; what was held back joins that step's gradients."""

    @abstractmethod
    def adopt(self, engine: Engine, plan: Plan) -> None:
        """Another plan with nothing held, whose state is loaded next."""

    @abstractmethod
    def owes(self, engine: Engine) -> bool:
        """Whether something of a plan before this one is still to be sent; the same on all workers."""

    @abstractmethod
    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        """What to save of this worker, or with `gather` (collective) of all."""

    @abstractmethod
    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        """Puts it back."""


class Alone(Node):
    """A node of one worker: everything is the engine's."""

    @property
    def leads(self) -> bool:
        return True

    @property
    def bytes_sent(self) -> int:
        return 0

    exchange = staticmethod(Engine.exchange)  # type: ignore[assignment]
    end_step = staticmethod(Engine.end_step)  # type: ignore[assignment]
    switch = staticmethod(Engine.switch)  # type: ignore[assignment]
    adopt = staticmethod(Engine.adopt)  # type: ignore[assignment]

    def owes(self, engine: Engine) -> bool:
        return bool(engine.pending_residual)

    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        return (gathered_state if gather else local_state)(engine)

    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        return load_state(engine, state, strict)


OBSERVE = "observe"


class SharedNode(Node):
    """The workers of one node, around the engine of their leader, which is the first of them.

    mean of the node's gradients      raw, added in rank order
    engine.exchange(mean)             the leader alone: nodes count alike, so the mean of means is the mean
    the mean of all nodes             from the leader to all: they have the same bits

    Memories, lessons and decisions are the leader's. The engines of the others only count steps.
    """

    def __init__(self, group: Group, device: torch.device) -> None:
        self.group, self.place = Metered(group), group.rank
        self._device, self._scratch = device, Scratch(device)
        self._known: set[Layout] = set()
        self._heard = False  # what the workers of the node observed before this step
        self._owes = False  # leaders have something left of a plan before this one

    @property
    def leads(self) -> bool:
        return self.place == 0

    @property
    def bytes_sent(self) -> int:
        return self.group.step_bytes

    def exchange(self, engine: Engine, bucket: Bucket) -> None:
        self._compare(engine, bucket.layout)
        if engine.scheduler.listens and not self._heard:
            observed, self._heard = self._observed(engine), True
            engine.scheduler.pending = observed if self.leads else Observation()
        with engine.clock.time(NODE):
            mean_in_order(self.group, bucket.buffer, self._scratch)
        if self.leads:
            engine.exchange(bucket)
        with engine.clock.time(NODE):
            self.group.broadcast(bucket.buffer).wait()

    def end_step(self, engine: Engine) -> None:
        """Leaders decide whether a step commits, and at which compression level; all know it."""
        step, self._heard = engine.step, False
        engine.end_step()
        if not (engine.plan.remembers or self._owes) and engine.plan.schedule is None:
            return
        status = [engine.finite_steps, engine.scheduler.compression_level, bool(engine.pending_residual)]
        finite_steps, level, owes = self.told(engine, status)
        self._owes = bool(owes)
        if not self.leads:
            engine.finite_steps = int(finite_steps)
            engine.scheduler.follow(level, step)

    def switch(self, engine: Engine, plan: Plan) -> None:
        engine.switch(plan)
        self._hear_of_pending(engine)

    def adopt(self, engine: Engine, plan: Plan) -> None:
        engine.adopt(plan)

    def take_up(self, engine: Engine) -> None:
        """What each worker of the node held is the leader's to send: the mean, for it speaks for all."""
        held = engine.pending_residual.take()
        if held:
            flat = torch.cat([held[name] for name in sorted(held)])
            with engine.clock.time(NODE), self.group.aside():
                mean_in_order(self.group, flat, self._scratch)
            if self.leads:
                _fill(engine.pending_residual, flat, {name: held[name].numel() for name in sorted(held)})
        self._owes = bool(held)

    def hand_down(self, engine: Engine) -> None:
        """What the leader held is sent by every worker of the node, each for itself."""
        self._hear_of_pending(engine)
        if not self._owes:
            return
        held = engine.pending_residual.take()
        sizes = {entry.spec.name: entry.spec.numel for entry in engine.plan.entries}
        flat = torch.cat([held.get(name, torch.zeros(n, device=self._device)) for name, n in sizes.items()])
        with engine.clock.time(NODE), self.group.aside():
            self.group.broadcast(flat).wait()
        _fill(engine.pending_residual, flat, sizes)

    def _hear_of_pending(self, engine: Engine) -> None:
        (owes,) = self.told(engine, [bool(engine.pending_residual)], aside=True)
        self._owes = bool(owes)

    def owes(self, engine: Engine) -> bool:
        return self._owes

    def told(self, engine: Engine, values: Sequence[float], aside: bool = False) -> list[float]:
        """The numbers of the leader; `aside`: they belong to no step."""
        words = torch.tensor(values, dtype=torch.float64, device=self._device)
        with engine.clock.time(NODE), self.group.aside() if aside else contextlib.nullcontext():
            self.group.broadcast(words).wait()
        told: list[float] = words.tolist()
        return told

    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        """Its own, or with `gather` the state of all leaders, which all workers get."""
        if not gather:
            return {**local_state(engine), "place": self.place, "owes": self._owes}
        with self.group.aside():
            pending = engine.scheduler.pending
            if engine.scheduler.listens:
                engine.scheduler.pending = self._observed(engine)
            made = self._spread(engine, gathered_state(engine) if self.leads else None)
            engine.scheduler.pending = pending
        return made

    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        place = state.get("place", self.place) if isinstance(state, Mapping) else self.place
        if place != self.place:
            raise StateError(
                f"the state is of worker {place} of a node, this is worker {self.place} of one: load each "
                "rank's own state, or one made with state_dict(gather=True)"
            )
        not_taken = load_state(engine, state, strict)
        gathered = any(own.get(PENDING, {}).get(E) for own in state.get("ranks", ()))
        self._owes = bool(state.get("owes", gathered))
        if not self.leads:  # what is held back is the leader's to hold
            engine.learned.clear()
            for feedback in engine.feedbacks.values():
                feedback.load({})
        return not_taken

    def _compare(self, engine: Engine, layout: Layout) -> None:
        """A bucket never seen before must be the same on all workers of the node."""
        if layout in self._known:
            return
        with engine.clock.time(NODE), self.group.aside():
            compare_digests(self.group, layout.digest, "buckets", self._device)
        self._known.add(layout)

    def _observed(self, engine: Engine) -> Observation:
        """What all workers of the node observed since the last step, as one observation."""
        mine = sent(engine.scheduler.pending.record(), self._device)
        records = mine.new_empty(self.group.size, RECORD_BYTES)
        with engine.clock.time(NODE):
            self.group.all_gather(mine, records).wait()
        engine.clock.current = OBSERVE  # other nodes do not know it if these workers disagree
        observed = merged(read_records(records), self.group.global_rank)
        engine.clock.current = PREPARE
        return observed

    def _spread(self, engine: Engine, state: dict[str, Any] | None) -> dict[str, Any]:
        """The leader's state, on all workers of the node."""
        written = b"" if state is None else pack_state(state)
        data = torch.frombuffer(bytearray(written or b"\0"), dtype=torch.uint8).to(self._device)
        size = torch.tensor([data.numel()], dtype=torch.int64, device=self._device)
        with engine.clock.time(NODE):
            self.group.broadcast(size).wait()
            data = data if self.leads else data.new_empty(int(size))
            self.group.broadcast(data).wait()
        return state if state is not None else unpack_state(data.cpu().numpy().tobytes())


def _fill(pending_residual: PendingResidual, flat: torch.Tensor, sizes: Mapping[str, int]) -> None:
    """Puts tensors that lie end to end where they are held."""
    for name, part in zip(sizes, torch.split(flat, list(sizes.values())), strict=True):
        pending_residual.put(name, part.clone())


def node_of(hierarchy: Hierarchy, plan: Plan, device: torch.device) -> Node:
    """The node of this worker; collective where it is not alone in it, among all workers of all nodes."""
    if hierarchy.per_node == 1:
        return Alone()
    compare_digests(hierarchy.group, plan.digest, "plans (codec, model, world size or version)", device)
    return SharedNode(hierarchy.node(), device)


class SwitchableNode(Node):
    """Both ways of a hierarchy, of which one is in force: a plan with one worker in a node is the flat one.

    What is held back changes hands with the way, so that the mean over all workers stays what it was:

    flat to nodes     a leader takes the mean of what its workers held
    nodes to flat     every worker takes what its leader held
    """

    def __init__(self, hierarchy: Hierarchy, device: torch.device) -> None:
        self.everybody = hierarchy.group
        self.shared, self.leaders = SharedNode(hierarchy.node(), device), hierarchy.leaders()
        self._alone = Alone()
        self._now: Node = self._alone

    @property
    def leads(self) -> bool:
        return self._now.leads

    @property
    def bytes_sent(self) -> int:
        return self.shared.bytes_sent

    def exchange(self, engine: Engine, bucket: Bucket) -> None:
        self._now.exchange(engine, bucket)

    def end_step(self, engine: Engine) -> None:
        self._now.end_step(engine)

    def switch(self, engine: Engine, plan: Plan) -> None:
        if plan.per_node == engine.plan.per_node:
            self._now.switch(engine, plan)
            return
        engine.switch(plan, self._group(plan))
        self._now = self._way(plan)
        if self._now is self.shared:
            self.shared.take_up(engine)
        else:
            self.shared.hand_down(engine)

    def adopt(self, engine: Engine, plan: Plan) -> None:
        engine.turn_to(self._group(plan))
        self._now = self._way(plan)
        self._now.adopt(engine, plan)

    def owes(self, engine: Engine) -> bool:
        return self._now.owes(engine)

    def state(self, engine: Engine, gather: bool) -> dict[str, Any]:
        return self._now.state(engine, gather)

    def load(self, engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
        return self._now.load(engine, state, strict)

    def _way(self, plan: Plan) -> Node:
        return self.shared if plan.per_node > 1 else self._alone

    def _group(self, plan: Plan) -> Group:
        return self.leaders if plan.per_node > 1 else self.everybody

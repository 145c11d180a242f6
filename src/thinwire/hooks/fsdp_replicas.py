"""Replicas of a sharded model (HSDP): between them each rank's row travels in few bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from thinwire.errors import PlanError, StateError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.state import load_state, local_state
from thinwire.groups.base import Group
from thinwire.hooks.fsdp_units import Unit
from thinwire.kernels import pick
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy


@dataclass(frozen=True)
class ReplicaGrid:
    """Who shares a model with this rank, and who holds the same rows in other replicas."""

    shard: Sequence[int]
    replicas: Sequence[int]

    @classmethod
    def of(cls, shard: dist.ProcessGroup, replicas: dist.ProcessGroup, world: int) -> ReplicaGrid:
        """Refuses what is no grid over all ranks."""
        found = cls(dist.get_process_group_ranks(shard), dist.get_process_group_ranks(replicas))
        shared = set(found.shard) & set(found.replicas)
        if shared != {dist.get_rank()} or len(found.shard) * len(found.replicas) != world:
            raise PlanError(
                f"replicate_group={found.replicas} and the ranks that share the model, {found.shard}, make "
                f"no grid of all {world} ranks: take both from one mesh, init_device_mesh(..., (replicas, "
                'shards), mesh_dim_names=("replicate", "shard"))'
            )
        return found

    def place(self, rank: int) -> tuple[int, int]:
        """How many ranks share the model, and which of them a rank is."""
        return len(self.shard), list(self.shard).index(rank)


class ReplicaExchange:
    """The exchange between replicas: an engine of its own, with error feedback of this rank's rows only."""

    def __init__(
        self,
        policy: Policy,
        model: nn.Module,
        group: Group,
        device: torch.device,
        seed: int,
        kernels: str | None,
        feedback: str | None,
    ) -> None:
        plan = Plan.of(policy, Model.of(model), group.size, feedback)
        self.group = group
        self.engine = Engine(plan, group, device, seed, pick(device, kernels))

    def exchange(self, bucket: Bucket) -> None:
        """Replaces a row by its mean over the replicas."""
        self.engine.exchange(bucket)

    def end_step(self) -> None:
        """All units of a step have been exchanged."""
        self.engine.end_step()

    def equalise(self, units: Sequence[Unit]) -> None:
        """All replicas take the weights of the first one."""
        for unit in units:
            for shard in unit.local_shards:
                if shard.numel():
                    self.group.broadcast(shard).wait()

    def state(self) -> dict[str, Any]:
        """What this rank must keep."""
        return local_state(self.engine)

    def load(self, state: Mapping[str, Any] | None) -> None:
        """Puts it back."""
        if state is None:
            raise StateError("the state is of a run without replicate_group=: pass the same as then")
        load_state(self.engine, state)

"""The units of an FSDP2 model: what torch keeps of them in private, read in one place; what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.distributed.fsdp._fully_shard._fsdp_collectives import DefaultAllGather, DefaultReduceScatter
from torch.distributed.fsdp._fully_shard._fsdp_common import DDPMeshInfo, TrainingState
from torch.distributed.tensor import DTensor

from thinwire.errors import PlanError
from thinwire.plans.policy import parameter_names
from thinwire.plans.sharded import rows_of
from thinwire.tensors import Layout, Spec

_WHOLE = "call fully_shard on its blocks, then fully_shard(model), then compress(model, ...)"


@dataclass(frozen=True, eq=False)
class Unit:
    """A module that was given to `fully_shard`: its parameters travel together. `names` are theirs."""

    name: str
    module: FSDPModule
    group: Any  # torch's FSDPParamGroup
    names: tuple[str, ...]

    def chunks(self, dtype: torch.dtype, trainable: bool) -> list[Spec]:
        """A rank's chunk of every parameter, padded as FSDP2 pads it; of those with gradients, or of all."""
        return [
            Spec(name, tuple(parameter.padded_sharded_param_size), dtype)
            for name, parameter in zip(self.names, self.group.fsdp_params, strict=True)
            if parameter.sharded_param.requires_grad or not trainable
        ]

    def rows(self, dtype: torch.dtype, world: int) -> Layout:
        """What its reduce-scatter takes."""
        return rows_of(self.chunks(dtype, trainable=True), world)

    def row(self, dtype: torch.dtype) -> Layout:
        """What its all-gather takes of this rank."""
        return Layout.packed(self.chunks(dtype, trainable=False))

    @property
    def reduce_dtype(self) -> torch.dtype:
        """Of gradients that travel, as its mixed precision says."""
        policy, found = self.group.mp_policy, [p.sharded_param for p in self.group.fsdp_params]
        own: torch.dtype = next((p.dtype for p in found if p.requires_grad), found[0].dtype)
        dtype: torch.dtype = policy.reduce_dtype or policy.param_dtype or own
        return dtype

    @property
    def weight_dtype(self) -> torch.dtype:
        """Of weights that travel."""
        own: torch.dtype = self.group.fsdp_params[0].sharded_param.dtype
        found: torch.dtype = self.group.mp_policy.param_dtype or own
        return found

    @property
    def reshards(self) -> bool:
        """Whether its weights are freed behind the forward pass, and gathered again in the backward pass."""
        if not self.name and self.module._get_fsdp_state()._auto_reshard_after_forward:
            return False  # torch's default for a root
        return self.group.post_forward_mesh_info is not None

    @property
    def in_backward(self) -> bool:
        """Whether weights are gathered for a backward pass: they are those of the forward pass."""
        return bool(self.group._training_state == TrainingState.PRE_BACKWARD)

    @property
    def local_shards(self) -> Iterator[Tensor]:
        """This rank's chunks, as the optimizer sees them."""
        for parameter in self.group.fsdp_params:
            yield parameter.sharded_param.to_local().detach()


def is_sharded(model: Any) -> bool:
    """Whether this is FSDP's business: FSDP2, or what is refused with a way there."""
    return isinstance(model, nn.Module) and any(
        isinstance(module, FSDPModule | FullyShardedDataParallel) for module in model.modules()
    )


def sharded_root(module: nn.Module) -> nn.Module | None:
    """The part of a module that FSDP has made, with all its parameters; None if there is none."""
    kinds = FSDPModule | FullyShardedDataParallel
    root = next((one for one in module.modules() if isinstance(one, kinds)), None)
    if root is not None and {*map(id, module.parameters())} != {*map(id, root.parameters())}:
        raise PlanError(f"only parts of this module are under FSDP: {_WHOLE}")
    return root


def units_of(model: nn.Module) -> tuple[list[Unit], dist.ProcessGroup]:
    """The units with parameters, and the ranks that share them; refuses models that are not whole."""
    if any(isinstance(module, FullyShardedDataParallel) for module in model.modules()):
        raise PlanError(
            "this model is under FSDP1 (FullyShardedDataParallel), whose reduce-scatter cannot be replaced: "
            f"use FSDP2 instead, from torch.distributed.fsdp import fully_shard; {_WHOLE}"
        )
    if not isinstance(model, FSDPModule):
        raise PlanError(f"only parts of this model are under FSDP2, its root is not: {_WHOLE}")
    names, units = parameter_names(model), list[Unit]()
    for path, module in model.named_modules():
        if isinstance(module, FSDPModule):
            units += _units_at(path, module, names)
    _refuse_loose(model, units, names)
    groups = {id(unit.group.mesh_info.shard_process_group): unit for unit in units}
    ranks = {
        tuple(dist.get_process_group_ranks(unit.group.mesh_info.shard_process_group))
        for unit in groups.values()
    }
    if len(ranks) > 1:
        raise PlanError(f"units are sharded over different ranks, {sorted(ranks)}: use one mesh for all")
    return units, units[0].group.mesh_info.shard_process_group


def _units_at(path: str, module: FSDPModule, names: dict[int, str]) -> list[Unit]:
    groups = module._get_fsdp_state()._fsdp_param_groups
    if len(groups) > 1:
        raise PlanError(
            f'unit "{path}" has several groups of parameters (a mesh for each parameter), which torch gives '
            "one reduce-scatter each: use one mesh in shard_placement_fn"
        )
    for group in groups:
        if isinstance(group.mesh_info, DDPMeshInfo):
            raise PlanError(
                "this model is sharded over a 2-D mesh (HSDP), between whose replicas torch hard-codes an "
                "all-reduce: shard it over a 1-D mesh of the ranks of a node, fully_shard(model, "
                'mesh=mesh["shard"]), and pass compress(..., replicate_group=mesh["replicate"].get_group())'
            )
        own = isinstance(group._reduce_scatter_comm, DefaultReduceScatter)
        if not own or not isinstance(group._all_gather_comm, DefaultAllGather):
            raise PlanError(
                f'unit "{path}" has a custom reduce-scatter or all-gather already: compress a model once, '
                "without set_custom_reduce_scatter, set_custom_all_gather and set_symm_mem"
            )
    return [
        Unit(path, module, group, tuple(names[id(p.sharded_param)] for p in group.fsdp_params))
        for group in groups
        if group.fsdp_params
    ]


def _refuse_loose(model: nn.Module, units: list[Unit], names: dict[int, str]) -> None:
    known = {id(parameter.sharded_param) for unit in units for parameter in unit.group.fsdp_params}
    loose = [names[id(p)] for p in model.parameters() if id(p) not in known]
    if loose:
        more = f" and {len(loose) - 1} more" if len(loose) > 1 else ""
        raise PlanError(f"{loose[0]}{more} is in no FSDP2 unit, so nobody sends its gradient: {_WHOLE}")
    if not units:
        raise PlanError("the model has no parameters: there is nothing to send")
    if not all(isinstance(p.sharded_param, DTensor) for unit in units for p in unit.group.fsdp_params):
        raise PlanError("parameters are not sharded: compress the model between steps, not within one")

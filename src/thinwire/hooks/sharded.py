"""`compress` for an FSDP2 model: what it may be asked for, and what is refused."""

from __future__ import annotations

from typing import Any

from torch import nn

from thinwire.clock import PLAN
from thinwire.codecs.catalog import AUTO
from thinwire.errors import PlanError, ThinwireError
from thinwire.exchange.weights import WeightCodec
from thinwire.groups.base import Group
from thinwire.groups.torch import TorchGroup
from thinwire.groups.wrappers import Emulated
from thinwire.hooks.failures import explain
from thinwire.hooks.fsdp import ShardedCompressor
from thinwire.hooks.fsdp_replicas import ReplicaGrid
from thinwire.hooks.fsdp_units import Unit, units_of
from thinwire.plans.policy import Policy

_OF_DDP = {
    "quality": 'it says what codec="auto" may take',
    "route": "FSDP2 says how gradients travel: every rank gets its rows",
    "check_every": "ranks hold different shards, so there is nothing to compare",
    "hierarchy": "pass replicate_group= for replicas of a sharded model",
}


def compress_sharded(model: nn.Module, codec: Any, **options: Any) -> ShardedCompressor:
    """Makes an FSDP2 model send compressed gradients, and weights if asked for; collective."""
    units, process_group = units_of(model)
    replicate_group, inside = options.pop("replicate_group"), options.pop("inside")
    link = options.pop("link")
    whole: Group = TorchGroup(process_group if replicate_group is None else None)
    whole = whole if link is None else Emulated(whole, link)
    try:
        _refuse(codec, options)
        policy = _policy(codec, options)
        grid = None if replicate_group is None else ReplicaGrid.of(process_group, replicate_group, whole.size)
        if grid is None and inside is not None:
            raise PlanError("inside= is what travels inside a node of replicas: pass replicate_group= too")
        weights = _weights(options, units)
        feedback = options.pop("feedback")
        if grid is None:
            _refuse_feedback(policy, feedback, units, whole.size)
    except ThinwireError as error:  # if it is this rank's alone, the others must not wait for it
        raise explain(error, PLAN, whole) from None
    scaler = options.pop("grad_scaler")
    more = {} if scaler is None else {"loss_scale": scaler.get_scale}
    own = {"policy": policy, "feedback": feedback} if grid is not None else None
    return ShardedCompressor(
        policy if grid is None else Policy.of(inside or "dense", policy.keep_dense, policy.min_numel),
        whole,
        model,
        units,
        grid=grid,
        between=own,
        weights=weights,
        feedback=feedback if grid is None else "none",
        schedule=options.pop("schedule"),
        seed=options.pop("seed"),
        kernels=options.pop("kernels"),
        optimizer=options.pop("optimizer"),
        **more,
    )


def _refuse(codec: Any, options: dict[str, Any]) -> None:
    """What FSDP2 cannot do."""
    if codec == AUTO:
        raise PlanError(
            'codec="auto" measures the buckets of DDP, and an FSDP2 model has none: name a codec, for '
            'example compress(model, "qsgd:4")'
        )
    for name, why in _OF_DDP.items():
        if options.pop(name, None) is not None:
            raise PlanError(f"{name}= does not fit an FSDP2 model, {why}: leave it out")
    if options.pop("on_drift", "raise") != "raise":
        raise PlanError("on_drift= does not fit an FSDP2 model, whose ranks hold different shards")


def _policy(codec: Any, options: dict[str, Any]) -> Policy:
    names = ("keep_dense", "min_numel", "total_steps", "sensitive")
    return Policy.of(codec, **{name: options.pop(name) for name in names})


def _weights(options: dict[str, Any], units: list[Unit]) -> WeightCodec | None:
    text, keep = options.pop("weights"), options.pop("keep_weights")
    if text is None:
        return None
    how = WeightCodec.of(text)
    if how.differs and not keep and any(unit.reshards for unit in units):
        nbytes = sum(
            4 * unit.row(unit.weight_dtype).numel * unit.group.mesh_info.shard_mesh_size for unit in units
        )
        raise PlanError(
            f'weights="{text}" keeps a copy of all weights on every rank, {nbytes:,} bytes, which '
            "reshard_after_forward=True is there to save: pass keep_weights=True to have both, or "
            'weights="qsgd:8", which needs no copy'
        )
    return how


def _refuse_feedback(policy: Policy, feedback: str | None, units: list[Unit], world: int) -> None:
    """A residual is of whole gradients, on every rank: only who asks for it gets it."""
    asking = [codec for codec in policy.codecs if codec.feedback != "none"]
    if feedback is not None or not asking:
        return
    numel = sum(unit.rows(unit.reduce_dtype, world).numel for unit in units)
    raise PlanError(
        f'{asking[0]} asks for error feedback "{asking[0].feedback}", which holds whole gradients on every '
        f"rank, up to {8 * numel:,} bytes, and FSDP2 is there to save that: use an unbiased codec "
        f'("qsgd:4", "terngrad"), feedback="none", or feedback="{asking[0].feedback}" if you want it so'
    )

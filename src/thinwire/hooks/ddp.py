"""The DDP adaptor: `compress` for a DistributedDataParallel model, `ddp_hook` for the (state, hook) pair."""

import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from thinwire.blame import explain
from thinwire.clock import PLAN
from thinwire.codec import Codec
from thinwire.errors import PlanError, ThinwireError
from thinwire.groups.base import Group
from thinwire.groups.emulated import Emulated, Link
from thinwire.groups.torch import TorchGroup
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.guard import guard
from thinwire.policy import KEEP_DENSE, MIN_NUMEL, Policy

# No `from __future__ import annotations` here: DDP compares the annotations of a hook with the real classes.
CodecLike = str | Codec | Mapping[str, str | Codec]
Hook = Callable[[Compressor, GradBucket], torch.futures.Future[torch.Tensor]]


def hook(state: Compressor, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Queues a bucket and hands DDP a future of it.

    The future always yields the bucket; an error is raised by a callback at the end of the backward pass,
    because DDP turns a failed future into "Unable to cast ... to Tensor".
    """
    buffer = bucket.buffer()
    _refuse(state, buffer)
    devices: list[int | str | torch.device] = [buffer.device] if buffer.is_cuda else []
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    in_backward = _raise_after_backward(state)
    done = lambda: future.set_result(buffer)  # noqa: E731
    state.exchange(buffer, bucket.parameters(), bucket.is_last(), done, shadowing=not in_backward)
    if not in_backward:  # a rank that has run out of inputs (Join) shadows the others
        state.wait()
    return future


def ddp_hook(
    codec: CodecLike,
    *,
    model: nn.Module | None = None,
    process_group: dist.ProcessGroup | None = None,
    device: torch.device | None = None,
    **options: Any,
) -> tuple[Compressor, Hook]:
    """The pair that every front end takes: `ddp.register_comm_hook(*tw.ddp_hook("terngrad", model=net))`.

    Without `model` tensors have no names: rules by name and `state_dict` are errors, and the last layer and
    embeddings cannot be told apart, so they are compressed too. Options are those of `compress`.
    """
    model = _uncompiled(model)
    module = model.module if isinstance(model, DistributedDataParallel) else model
    group = _group(process_group, options.pop("link", None))
    try:
        policy, rest = _policy(codec, options)
        if module is None:
            _check_nameless(policy)
        else:
            _refuse_sparse(module)
        if device is None:
            parameters = module.parameters() if module is not None else iter(())
            device = next((parameter.device for parameter in parameters), torch.device("cpu"))
    except ThinwireError as error:  # if it is this rank's alone, the others must not wait for it
        raise explain(error, PLAN, group) from None
    state = Compressor(policy, group, device, module, **rest)
    if isinstance(model, DistributedDataParallel):
        state.bind(model)
    return state, hook


def compress(
    model: DistributedDataParallel,
    codec: CodecLike = "terngrad",
    *,
    memory: str | None = None,
    route: str | None = None,
    control: str | None = None,
    keep_dense: Iterable[str] = KEEP_DENSE,
    min_numel: int = MIN_NUMEL,
    seed: int = 0,
    grad_scaler: torch.amp.GradScaler | None = None,
    link: Link | None = None,
    kernels: str | None = None,
    check_every: int | None = None,
    on_drift: str = "raise",
) -> Compressor:
    """Makes a DDP model send compressed gradients; nothing else in the training script changes.

    `codec` is a text ("terngrad", "terngrad:clip=off"), a codec, or patterns with codecs
    ({"fc*": "terngrad", "*": "dense"}). `memory` and `route` overrule the codec's own; `control` says
    how strong it is over time ("guard", "diminish", "epochs:0=1/5=0.5"; see `Compressor.observe`);
    `keep_dense` and `min_numel` say what stays dense by rule; `grad_scaler` is needed by memories under mixed
    precision; `link` makes the network as slow as a given one. Every `check_every` steps (100 by default, 0
    for never) the ranks compare their parameters; if they differ, `on_drift` says what happens: "raise",
    "warn", or "repair" (all take those of the first rank).

    >>> compressor = compress(ddp_model, "terngrad")            # doctest: +SKIP
    >>> loss.backward(); optimizer.step()                       # doctest: +SKIP
    >>> print(compressor.report())                              # doctest: +SKIP
    """
    model = _uncompiled(model)
    if not isinstance(model, DistributedDataParallel):
        raise PlanError(
            f"compress takes a DistributedDataParallel model, not {type(model).__name__}: wrap it first, "
            "model = DistributedDataParallel(net)"
        )
    state, comm_hook = ddp_hook(
        codec,
        model=model,
        process_group=model.process_group,
        device=model.device if isinstance(model.device, torch.device) else next(model.parameters()).device,
        memory=memory,
        route=route,
        control=control,
        keep_dense=keep_dense,
        min_numel=min_numel,
        seed=seed,
        grad_scaler=grad_scaler,
        link=link,
        kernels=kernels,
        check_every=check_every,
        on_drift=on_drift,
    )
    try:
        model.register_comm_hook(state, comm_hook)
    except RuntimeError as error:
        state.close()
        raise PlanError(
            "this model has a communication hook already, and DDP takes only one: wrap the net in a new "
            "DistributedDataParallel"
        ) from error
    guard(model, state)
    return state


def _uncompiled(model: Any) -> Any:
    """The module that torch.compile was given, if this is what it made."""
    return getattr(model, "_orig_mod", model)


def _policy(codec: CodecLike, options: dict[str, Any]) -> tuple[Policy, dict[str, Any]]:
    """The policy, and the options that are not its own."""
    rest = dict(options)
    keep_dense, min_numel = rest.pop("keep_dense", KEEP_DENSE), rest.pop("min_numel", MIN_NUMEL)
    scaler = rest.pop("grad_scaler", None)
    if scaler is not None:
        rest["loss_scale"] = scaler.get_scale
    return Policy.of(codec, keep_dense, min_numel), rest


def _group(process_group: dist.ProcessGroup | None, link: Link | None) -> Group:
    group = TorchGroup(process_group)
    return Emulated(group, link) if link is not None else group


def _check_nameless(policy: Policy) -> None:
    if policy.rules:
        raise PlanError(
            f'rules by name ("{policy.rules[0][0]}") need parameter names: pass model= to ddp_hook'
        )
    unknown = [word for word in ("last", "embedding") if word in policy.keep_dense]
    if unknown and not policy.rest.gentle:
        warnings.warn(
            f"ddp_hook without model= cannot tell which tensors are {' or '.join(unknown)}: they are "
            'compressed too. Pass model=, or keep_dense=("vector", "small") if that is what you want',
            stacklevel=3,
        )


def _refuse_sparse(module: nn.Module) -> None:
    for name, child in module.named_modules():
        if isinstance(child, nn.Embedding | nn.EmbeddingBag) and child.sparse:
            raise PlanError(
                f"{name} has sparse gradients, which cannot be compressed: make it with sparse=False"
            )


def _raise_after_backward(state: Compressor) -> bool:
    """Queues a callback that runs when all buckets of this backward pass are done; False outside of one.

    DDP queues its own callback, which waits for the buckets, after the last of them: hence behind the first
    callback of ours, and before the one that this queues.
    """
    engine = torch.autograd.Variable._execution_engine

    def behind_ddp() -> None:
        model = state.owner()
        if isinstance(model, DistributedDataParallel) and model.find_unused_parameters:
            state.wait()  # now: DDP has a collective of its own to wait for, whose error would come first
        engine.queue_callback(state.raise_error)

    try:
        engine.queue_callback(behind_ddp)
    except RuntimeError:
        return False
    return True


def _refuse(state: Compressor, buffer: torch.Tensor) -> None:
    """What DDP can ask for and a compressor cannot do."""
    if buffer.is_sparse:
        raise PlanError("sparse gradients cannot be compressed: make the embedding with sparse=False")
    model = state.owner()
    if not isinstance(model, DistributedDataParallel) or not model._join_config.enable:
        return
    if not model._divide_by_initial_world_size:
        raise PlanError(
            "join(divide_by_initial_world_size=False) cannot be honoured: means are over all ranks, those "
            "without inputs count as zero; leave it out"
        )

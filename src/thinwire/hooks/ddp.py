"""The DDP adaptor: `compress` for a DistributedDataParallel model, `ddp_hook` for the (state, hook) pair."""

import sys
import warnings
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from thinwire.auto.qualities import DENSE, candidates
from thinwire.clock import PLAN
from thinwire.codecs.catalog import AUTO
from thinwire.codecs.codec import CodecLike
from thinwire.deprecated import former_arguments
from thinwire.errors import PlanError, ThinwireError
from thinwire.groups.base import Group
from thinwire.groups.hierarchy import OFF
from thinwire.groups.torch import TorchGroup
from thinwire.groups.wrappers import Emulated, Link
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.failures import explain
from thinwire.hooks.guard import guard, refuse_nested
from thinwire.hooks.optimizer import quality_by
from thinwire.plans.policy import KEEP_DENSE, MIN_NUMEL, Policy
from thinwire.texts import FORMER, read_hierarchy, split_options

# No `from __future__ import annotations` here: DDP compares the annotations of a hook with the real classes.
CodecChoice = CodecLike | Mapping[str, CodecLike]
_OF_FSDP2 = ("weights", "keep_weights", "replicate_group", "inside")
_OF_A_CODEC = (
    "feedback",
    "route",
    "schedule",
    "sensitive",
)  # of a codec; auto chooses them
Hook = Callable[[Compressor, GradBucket], torch.futures.Future[torch.Tensor]]


def hook(state: Compressor, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Queues a bucket and hands DDP a future of it.

    The future always yields the bucket; an error is raised by a callback at the end of the backward pass,
    because DDP turns a failed future into "Unable to cast ... to Tensor".
    """
    buffer, queue, auto = bucket.buffer(), state.queue, state.queue.auto
    _refuse(state, buffer)
    if bucket.index() == 0:
        queue.begin_step()
    if auto is not None and not queue.worker.failed:
        auto.bucket_ready(is_first=bucket.index() == 0)
    in_backward = _raise_after_backward(state)
    if auto is not None and auto.passes:
        state.group.go_outside()
        plain = _plain(state, bucket)
        queue.pass_by(bucket.parameters(), bucket.is_last(), shadowing=not in_backward)
        if not in_backward or (bucket.is_last() and _waits_within(state)):
            queue.plain.settle()
        if not in_backward:
            queue.raise_error()
        return plain
    devices: list[int | str | torch.device] = [buffer.device] if buffer.is_cuda else []
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
    done = lambda: future.set_result(buffer)  # noqa: E731
    views = bucket.gradients() if auto is not None else ()
    queue.exchange(buffer, bucket.parameters(), bucket.is_last(), done, not in_backward, views)
    if not in_backward or (bucket.is_last() and state.engine.step == 0 and _waits_within(state)):
        state.wait()
    return future


@former_arguments(**FORMER)
def ddp_hook(
    codec: CodecChoice,
    *,
    model: nn.Module | None = None,
    process_group: dist.ProcessGroup | None = None,
    device: torch.device | None = None,
    **options: Any,
) -> tuple[Compressor, Hook]:
    """The pair that every front end takes: `ddp.register_comm_hook(*tw.ddp_hook("terngrad", model=net))`.

    `codec` is as in `compress`, and so are all further options. Without `model` (the net, or DDP's wrapper of
    it) tensors have no names: rules by name and `state_dict` are errors, and the last layer and
    embeddings cannot be told apart, so they are compressed too. `process_group` and `device` are DDP's own
    unless given.
    """
    model = _uncompiled(model)
    module = model.module if isinstance(model, DistributedDataParallel) else model
    link = options.pop("link", None)
    group = _group(process_group, link)
    try:
        codec = _auto(_asked(codec, options), options, module)
        policy, rest = _policy(codec, options)
        if module is None:
            _check_nameless(policy)
        else:
            refuse_module(module)
        if device is None:
            parameters = module.parameters() if module is not None else iter(())
            device = next((parameter.device for parameter in parameters), torch.device("cpu"))
    except ThinwireError as error:  # if it is this rank's alone, the others must not wait for it
        raise explain(error, PLAN, group) from None
    # DDP's own way knows no emulated link
    state = Compressor(policy, group, device, module, can_pass=link is None, **rest)
    state.queue.plain.process_group = process_group
    if isinstance(model, DistributedDataParallel):
        state.bind(model)
    return state, hook


@former_arguments(**FORMER)
def compress(
    model: nn.Module,
    codec: CodecChoice = AUTO,
    *,
    quality: str | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    feedback: str | None = None,
    route: str | None = None,
    schedule: str | None = None,
    keep_dense: str | Iterable[str] = KEEP_DENSE,
    min_numel: int = MIN_NUMEL,
    sensitive: CodecLike | None = None,
    seed: int = 0,
    grad_scaler: torch.amp.GradScaler | None = None,
    link: Link | None = None,
    kernels: str | None = None,
    check_every: int | None = None,
    on_drift: str = "raise",
    hierarchy: str | int | None = None,
    total_steps: int | None = None,
    weights: str | None = None,
    keep_weights: bool = False,
    replicate_group: dist.ProcessGroup | None = None,
    inside: str | None = None,
) -> Any:
    """Makes a DDP or FSDP2 model send compressed gradients; nothing else in the training script changes.

    What travels:

    - `model`: what DistributedDataParallel made, or torch.compile of that; or a model after `fully_shard`
      (docs/how-to/fsdp2.md).
    - `codec`: "auto" measures the link, the step and the codecs in the first steps and takes what is
      quickest, plain DDP included; auto.md. Or one by name, as a text ("terngrad", "terngrad:clip=off",
      "topk:0.01 >> fp16", "topk:0.01 @ feedback=none" with options of this function behind the @), an object
      (TernGrad(clip=2.0), TopK(0.01) >> Cast("fp16")), a class of your own by its path
      ("mymodule.MyCodec:4"), or patterns with codecs ({"fc*": "terngrad", "*": "dense"}); codecs.md.
    - `quality`: what "auto" may take: "exact" (nothing but plain DDP), "safe", "balanced", "aggressive", or
      what keeps its accuracy under an optimizer: "SGD", "Adam". None: as the given `optimizer` is; "safe" for
      others and without one; docs/how-to/auto.md.
    - `keep_dense`: which tensors stay dense unless a pattern other than "*" names them: any of "vector"
      (norms, biases), "small", "embedding", "last" (layer). `min_numel`: below so many elements is small.
    - `sensitive`: a codec for these tensors instead of dense, for example "qsgd:8".
    - `feedback`: error feedback, which holds back what is not sent: "none", "residual", "momentum" (DGC's;
      with options: "momentum:0.9,nesterov=on"), "ef21". None: the one that the codec asks for.
    - `route`: how payloads travel and merge: "allreduce", "allgather" or "sharded". None: the codec's.
    - `hierarchy`: raw means inside a node, compressed exchange between nodes: "auto" (a host is a node), how
      many workers a node has, or "off" (every worker exchanges). hierarchy.md. None: "off". To codec
      "auto" it says who shares a node, and not that nodes are used; None: who shares a host, if all hosts
      have equally many workers.
    - `schedule`: the compression level over time: "guard", "diminish", "epochs:0=1/5=0.5", "steps:...".
      None: always as it was asked for. Most need `Compressor.observe` once a step; docs/how-to/schedules.md.

    Under FSDP2 only:

    - `weights`: what the all-gathers of weights send: "qsgd:8", or "difference >> qsgd:4", which keeps a copy
      of all weights on every rank (`keep_weights`: although units reshard). None: weights as they are.
    - `replicate_group`: the ranks that hold the same shard in other replicas (HSDP): `codec` goes between
      them, and `inside` ("dense", "qsgd:8") among those who share the model.

    How it runs:

    - `optimizer`: what updates the model. `check_optimizer` is called with it, and "auto" goes by it.
    - `total_steps`: how many steps the run has, for options that are a part of it ("dgc:warmup=5%").
    - `seed`: of what codecs draw at random (rounding). The same on all ranks; with it a run can be repeated.
    - `grad_scaler`: the GradScaler of mixed precision, whose scale error feedback divides by.
    - `check_every`: steps between two comparisons of the parameters of all ranks (None: 100, 0: never).
      `on_drift`: if they differ: "raise", "warn", or "repair" (all take those of the first rank).
    - `kernels`: which code encodes: None (the fastest here), "reference" (plain torch), or a name that
      `thinwire doctor` lists, such as "cpu-avx2". All give the same bits.
    - `link`: makes thinwire's own traffic as slow as this `Link`, to try out a network that is not there.

    >>> compressor = compress(ddp_model)                        # doctest: +SKIP
    >>> loss.backward(); optimizer.step()                       # doctest: +SKIP
    >>> print(compressor.report())                              # doctest: +SKIP
    """
    options = {name: value for name, value in locals().items() if name not in ("model", "codec")}
    model = _uncompiled(model)
    if _is_sharded(model):
        from thinwire.hooks.sharded import compress_sharded

        return compress_sharded(model, codec, **options)
    if not isinstance(model, DistributedDataParallel):
        raise PlanError(
            f"compress takes a DistributedDataParallel or FSDP2 model, not {type(model).__name__}: wrap it "
            "first, model = DistributedDataParallel(net)"
        )
    _refuse_fsdp2(options)
    refuse_nested(model)
    own = model.device if isinstance(model.device, torch.device) else next(model.parameters()).device
    state, comm_hook = ddp_hook(codec, model=model, process_group=model.process_group, device=own, **options)
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


def _is_sharded(model: Any) -> bool:
    """Whether FSDP made this model; torch's FSDP is not imported for those who do not use it."""
    if "torch.distributed.fsdp" not in sys.modules:
        return False
    from thinwire.hooks.fsdp_units import is_sharded

    return is_sharded(model)


def _refuse_fsdp2(options: dict[str, Any]) -> None:
    """Takes out what only FSDP2 models have; refuses it where it was given."""
    for name in _OF_FSDP2:
        if options.pop(name):
            raise PlanError(f"{name}= is for FSDP2 models, and DDP keeps whole weights: leave it out")


def leave_gradients_alone(model: DistributedDataParallel) -> None:
    """DDP leaves every rank its own gradients: an optimizer exchanges what it needs (thinwire.optim)."""

    def as_they_are(state: None, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        future.set_result(bucket.buffer())
        return future

    try:
        model.register_comm_hook(None, as_they_are)
    except RuntimeError as error:
        raise PlanError(
            "this model has a communication hook already (tw.compress?), and 1-bit optimizers exchange by a "
            "codec of their own: leave out tw.compress, or take torch.optim.AdamW with it"
        ) from error


def _uncompiled(model: Any) -> Any:
    """The module that torch.compile was given, if this is what it made."""
    return getattr(model, "_orig_mod", model)


def _asked(codec: CodecChoice, options: dict[str, Any]) -> CodecChoice:
    """The codec without what stands behind "@" in its text, which joins the options."""
    if not isinstance(codec, str):
        return codec
    text, given = split_options(codec)
    for name, value in given.items():
        if name == "bucket":
            raise PlanError(
                f'"{codec}": bucket={value} is the size of DDP\'s buckets, and DDP is made already: pass '
                f"bucket_cap_mb={value} to DistributedDataParallel"
            )
        if name == "weights":
            raise PlanError(f'"{codec}": weights= is an argument of compress, for FSDP2 models')
        if name in ("every", "outer"):
            raise PlanError(
                f'"{codec}": {name}= is for local steps, and DDP exchanges in every step: make a tw.DiLoCo '
                "of the net itself, without DistributedDataParallel"
            )
        if options.get(name) is not None:
            raise PlanError(f'"{codec}": {name}= is given behind @ and as an argument: leave one out')
        options[name] = read_hierarchy(value) if name == "hierarchy" else value
    return text


def _auto(codec: CodecChoice, options: dict[str, Any], module: nn.Module | None) -> CodecChoice:
    """What an auto run begins with, and its quality as an option; another codec as it is."""
    if codec != AUTO:
        if options.pop("quality", None) is not None:
            raise PlanError('quality= says what codec="auto" may take: leave it out, or pass "auto"')
        if options.get("hierarchy") is None:
            options["hierarchy"] = OFF
        return codec
    given = [name for name in _OF_A_CODEC if options.get(name) is not None]
    if given:
        raise PlanError(f'{given[0]}= belongs to a codec, and codec="auto" chooses those: leave it out')
    if module is None:
        raise PlanError('codec="auto" needs parameter names: pass model= to ddp_hook')
    if options.get("quality") is None:
        options["quality"], options["about_quality"] = quality_by(options.get("optimizer"))
    allowed = candidates(options["quality"])  # a wrong one is refused before anything is connected
    if options.setdefault("hierarchy", None) is None and not allowed:
        options["hierarchy"] = OFF
    return DENSE


def _policy(codec: CodecChoice, options: dict[str, Any]) -> tuple[Policy, dict[str, Any]]:
    """The policy, and the options that are not its own."""
    rest = dict(options)
    keep_dense, min_numel = rest.pop("keep_dense", KEEP_DENSE), rest.pop("min_numel", MIN_NUMEL)
    scaler = rest.pop("grad_scaler", None)
    if scaler is not None:
        rest["loss_scale"] = scaler.get_scale
    total_steps, sensitive = rest.pop("total_steps", None), rest.pop("sensitive", None)
    return Policy.of(codec, keep_dense, min_numel, total_steps, sensitive), rest


def _group(process_group: dist.ProcessGroup | None, link: Link | None) -> Group:
    group = TorchGroup(process_group)
    return Emulated(group, link) if link is not None else group


def _check_nameless(policy: Policy) -> None:
    if policy.rules:
        raise PlanError(
            f'rules by name ("{policy.rules[0][0]}") need parameter names: pass model= to ddp_hook'
        )
    unknown = [word for word in ("last", "embedding") if word in policy.keep_dense]
    if unknown and not policy.rest.near_lossless:
        warnings.warn(
            f"ddp_hook without model= cannot tell which tensors are {' or '.join(unknown)}: they are "
            'compressed too. Pass model=, or keep_dense=("vector", "small") if that is what you want',
            stacklevel=3,
        )


def refuse_module(module: nn.Module) -> None:
    """What no bucket of it could be compressed for: tensors on several devices, sparse gradients."""
    devices = sorted({str(tensor.device) for tensor in module.parameters() if tensor.requires_grad})
    if len(devices) > 1:
        raise PlanError(f"parameters are on {', '.join(devices)}: only a model on one device is compressed")
    for name, child in module.named_modules():
        if isinstance(child, nn.Embedding | nn.EmbeddingBag) and child.sparse:
            raise PlanError(
                f"{name} has sparse gradients, which cannot be compressed: make it with sparse=False"
            )


def _plain(state: Compressor, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """DDP's own all-reduce. What it meets is raised at the end of the backward pass, like ours."""
    if state.failed:  # its connections are closed
        over: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        over.set_result(bucket.buffer())
        return over
    return state.queue.plain.start(bucket)


def _raise_after_backward(state: Compressor) -> bool:
    """Queues a callback that runs when all buckets of this backward pass are done; False outside of one.

    DDP queues its own callback, which waits for the buckets, after the last of them: hence behind the first
    callback of ours, which settles those that went DDP's own way, and before the one that this queues.
    """
    engine = torch.autograd.Variable._execution_engine

    def behind_ddp() -> None:
        if state.queue.plain.under_way:
            state.queue.plain.settle()
        model = state.owner()
        if isinstance(model, DistributedDataParallel) and model.find_unused_parameters:
            state.wait()  # now: DDP has a collective of its own to wait for, whose error would come first
        engine.queue_callback(state.queue.end_backward)

    try:
        engine.queue_callback(behind_ddp)
    except RuntimeError:
        return False
    return True


def _waits_within(state: Compressor) -> bool:
    """Whether DDP itself waits before any callback of ours can run, and would raise an error of its own.

    In its first step a static graph is reduced by one callback, with a collective of DDP's own at its end. (A
    rank that has run out of inputs, Join, is in no backward pass at all.)
    """
    model = state.owner()
    return isinstance(model, DistributedDataParallel) and model.static_graph


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

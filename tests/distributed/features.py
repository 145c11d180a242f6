"""What DDP can do besides plain steps: each function trains with one feature and gives the parameters.

Every function takes a codec (None: plain DDP, nothing of thinwire) and the options of `compress`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.join import Join
from torch.utils.checkpoint import checkpoint
from training import batch, convolutions, descend, fit, loss_of, mlp, one_layer, wrap

STEPS = 4


def several_buckets(codec: Any, **options: Any) -> Tensor:
    with wrap(mlp(), codec, **options) as it:
        fit(it.model, STEPS)
        return it.parameters()


def one_bucket(codec: Any, **options: Any) -> Tensor:
    with wrap(mlp(), codec, {"bucket_cap_mb": 25}, **options) as it:
        fit(it.model, STEPS)
        return it.parameters()


def odd_bucket(codec: Any, **options: Any) -> Tensor:
    with wrap(one_layer(), codec, **options) as it:
        fit(it.model, STEPS, make_batch=lambda step: batch(step, 4))
        return it.parameters()


def no_sync(codec: Any, **options: Any) -> Tensor:
    """Two batches a step; only the second one's backward pass exchanges."""
    with wrap(mlp(), codec, **options) as it:
        for step in range(STEPS):
            with it.model.no_sync():
                loss_of(it.model(batch(2 * step, 20))).backward()
            loss_of(it.model(batch(2 * step + 1, 20))).backward()
            descend(it.model)
        if it.compressor is not None:
            assert it.compressor.report().steps == STEPS
        return it.parameters()


class Branches(nn.Module):
    """A trunk and two heads, of which a step uses one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.trunk = nn.Linear(20, 64)
        self.heads = nn.ModuleList([nn.Linear(64, 40), nn.Linear(64, 40)])

    def forward(self, x: Tensor, head: int) -> Tensor:
        out: Tensor = self.heads[head](self.trunk(x).relu())
        return out


def unused_parameters(codec: Any, **options: Any) -> Tensor:
    """Ranks use different heads, and in every third step all use the same one."""
    with wrap(Branches(), codec, {"find_unused_parameters": True}, **options) as it:
        for step in range(6):
            head = 0 if step % 3 == 2 else (dist.get_rank() + step) % 2
            loss_of(it.model(batch(step, 20), head)).backward()
            descend(it.model)
        return it.parameters()


def static_graph(codec: Any, **options: Any) -> Tensor:
    with wrap(mlp(), codec, {"static_graph": True}, **options) as it:
        fit(it.model, STEPS)
        return it.parameters()


def bucket_view(codec: Any, **options: Any) -> Tensor:
    with wrap(mlp(), codec, {"gradient_as_bucket_view": True}, **options) as it:
        fit(it.model, STEPS)
        return it.parameters()


def checkpointed(codec: Any, **options: Any) -> Tensor:
    """Activations are computed again in backward passes inside of the backward pass."""
    net = mlp()
    body = net[:4]
    net.forward = lambda x: net[4](checkpoint(body, x, use_reentrant=True))  # type: ignore[method-assign]
    with wrap(net, codec, **options) as it:
        fit(it.model, STEPS, make_batch=lambda step: batch(step, 20).requires_grad_())
        return it.parameters()


def uneven_inputs(codec: Any, **options: Any) -> Tensor:
    """Rank r has 2 + 2r batches; those who are through shadow the others."""
    with wrap(mlp(), codec, **options) as it:
        with Join([it.model]):
            fit(it.model, 2 + 2 * dist.get_rank())
        if it.compressor is not None:
            assert it.compressor.report().steps == 2 + 2 * (dist.get_world_size() - 1)
        return it.parameters()


def frozen_parameters(codec: Any, **options: Any) -> Tensor:
    net = mlp()
    net[2].weight.requires_grad_(False)
    with wrap(net, codec, **options) as it:
        fit(it.model, STEPS)
        return it.parameters()


def channels_last(codec: Any, **options: Any) -> Tensor:
    # torch's annotations do not know memory_format
    net = convolutions().to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    with wrap(net, codec, **options) as it:
        fit(it.model, STEPS, make_batch=_images)
        return it.parameters()


def _images(step: int) -> Tensor:
    return batch(step, 3, 10, 10).to(memory_format=torch.channels_last)


def two_models(codec: Any, **options: Any) -> Tensor:
    """Two models take turns in one process, each with its own compressor."""
    with wrap(mlp(), codec, **options) as first, wrap(one_layer(), codec, **options) as second:
        for step in range(STEPS):
            fit(first.model, 1, start=step)
            fit(second.model, 1, start=step, make_batch=lambda step: batch(step, 4))
        return torch.cat([first.parameters(), second.parameters()])


def one_by_one(codec: Any, **options: Any) -> Tensor:
    """What `two_models` trains, one model after the other: one compressor is closed, then the next starts."""
    return torch.cat([several_buckets(codec, **options), odd_bucket(codec, **options)])


FEATURES = (
    several_buckets,
    odd_bucket,
    no_sync,
    unused_parameters,
    static_graph,
    bucket_view,
    checkpointed,
    uneven_inputs,
    frozen_parameters,
    channels_last,
    two_models,
)

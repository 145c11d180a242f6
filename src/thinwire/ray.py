"""Ray Train: `prepare_model` in place of Ray's compresses the gradients of a TorchTrainer's workers."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.frameworks import require
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.ddp import CodecChoice, compress

require("thinwire.ray", ray="2.60")
from ray.train import torch as ray_torch  # noqa: E402


def prepare_model(
    model: nn.Module, codec: CodecChoice = "auto", **options: Any
) -> tuple[nn.Module, Compressor | None]:
    """What `ray.train.torch.prepare_model` makes of a model, and its compressor; options as `tw.compress`.

    A single worker sends nothing: its compressor is None. Save `compressor.state_dict(gather=True)`, called
    on all workers, in the checkpoint that you report, and `compressor.report().headline()` as metrics.

    >>> model, compressor = thinwire.ray.prepare_model(net, "qsgd:4")                        # doctest: +SKIP
    """
    prepared = ray_torch.prepare_model(model)
    if not isinstance(prepared, DistributedDataParallel):
        return prepared, None
    return prepared, compress(prepared, codec, **options)

"""Accelerate: `compress(accelerator)` before `prepare` compresses the gradients of what it prepares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.errors import PlanError
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.ddp import CodecChoice
from thinwire.hooks.ddp import compress as compress_ddp

try:
    from accelerate import Accelerator
    from accelerate.utils import DistributedDataParallelKwargs, DistributedType
except ImportError as error:
    raise ImportError(
        'thinwire.accelerate needs Accelerate 1.15 or newer: pip install "accelerate>=1.15"'
    ) from error

PLAIN = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.NO)


def compress(accelerator: Accelerator, codec: CodecChoice = "auto", **options: Any) -> AcceleratorCompression:
    """Makes what the accelerator prepares send compressed gradients; takes what `tw.compress` takes.

    >>> accelerator = Accelerator()                                                          # doctest: +SKIP
    >>> compression = compress(accelerator, "rotated")                                       # doctest: +SKIP
    >>> model, optimizer, loader = accelerator.prepare(net, optimizer, loader)               # doctest: +SKIP
    """
    return AcceleratorCompression(accelerator, codec, options)


class AcceleratorCompression:
    """What `compress` returns. `save_state` and `load_state` of the accelerator have its state."""

    def __init__(self, accelerator: Accelerator, codec: CodecChoice, options: dict[str, Any]) -> None:
        if accelerator.distributed_type not in PLAIN:
            raise PlanError(
                f"thinwire needs plain DDP, not {accelerator.distributed_type.value}: leave DeepSpeed and "
                "FSDP out of the accelerator's configuration"
            )
        if accelerator._models:
            raise PlanError("a model is prepared already: call compress before accelerator.prepare")
        self.codec, self.options = codec, options
        self.compressor: Compressor | None = None
        self._saved: dict[str, Any] | None = None
        accelerator.ddp_handler = hooked(accelerator.ddp_handler, self.attach)
        accelerator.register_for_checkpointing(self)

    def attach(self, model: nn.Module) -> None:
        """Called by the accelerator with the DDP model that it made."""
        if self.compressor is not None:
            raise PlanError(
                "the accelerator wraps a second model: thinwire compresses one, use one Accelerator each"
            )
        if not isinstance(model, DistributedDataParallel):
            raise PlanError(f"thinwire needs DDP, not {type(model).__name__}")
        self.compressor = compress_ddp(model, self.codec, **self.options)
        if self._saved is not None:
            self.compressor.load_state_dict(self._saved)

    def metrics(self) -> dict[str, float]:
        """Ratio and bytes of a step, for `accelerator.log`; nothing in a run of one process."""
        return {} if self.compressor is None else self.compressor.report().headline()

    def state_dict(self) -> dict[str, Any]:
        """What the accelerator saves; collective."""
        return {} if self.compressor is None else {"compressor": self.compressor.state_dict(gather=True)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Goes on from what was saved; a state that is loaded before `prepare` waits for it."""
        self._saved = state.get("compressor")
        if self.compressor is not None and self._saved is not None:
            self.compressor.load_state_dict(self._saved)


def hooked(
    existing: DistributedDataParallelKwargs | None, attach: Callable[[nn.Module], None]
) -> DistributedDataParallelKwargs:
    """The accelerator's options of DDP with a communication hook of ours."""

    class Hooked(DistributedDataParallelKwargs):
        def register_comm_hook(self, model: nn.Module) -> None:
            attach(model)

    return Hooked(**({} if existing is None else existing.to_kwargs()))

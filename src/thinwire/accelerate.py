"""Accelerate: `compress(accelerator)` before `prepare` compresses the gradients of what it prepares."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.errors import PlanError
from thinwire.frameworks import require
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.ddp import CodecChoice
from thinwire.hooks.ddp import compress as compress_ddp

require("thinwire.accelerate", accelerate="1.15")
from accelerate import Accelerator  # noqa: E402
from accelerate.utils import (  # noqa: E402
    DDPCommunicationHookType,
    DistributedDataParallelKwargs,
    DistributedType,
)

FILE = "thinwire.pt"  # in a checkpoint's folder
PLAIN = (DistributedType.MULTI_CPU, DistributedType.MULTI_GPU, DistributedType.NO)


def compress(accelerator: Accelerator, codec: CodecChoice = "auto", **options: Any) -> AcceleratorCompression:
    """Makes what the accelerator prepares send compressed gradients; takes what `tw.compress` takes.

    >>> accelerator = Accelerator()                                                          # doctest: +SKIP
    >>> compression = compress(accelerator, "qsgd:4")                                        # doctest: +SKIP
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
        self._writes = accelerator.is_main_process
        accelerator.ddp_handler = hooked(accelerator.ddp_handler, self.attach)
        accelerator.register_save_state_pre_hook(self._save)
        accelerator.register_load_state_pre_hook(self._load)
        end_training = accelerator.end_training

        def closing() -> None:
            """The compressor ends before the accelerator destroys the process group."""
            if self.compressor is not None:
                self.compressor.close()
            end_training()

        accelerator.end_training = closing

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

    def _save(self, models: list[nn.Module], weights: list[dict[str, Any]], output_dir: str) -> None:
        """Called by `save_state` on all ranks, which is what gathering needs."""
        if self.compressor is not None:
            saved = self.compressor.state_dict(gather=True)
            if self._writes:
                write_state(Path(output_dir), saved)

    def _load(self, models: list[nn.Module], input_dir: str) -> None:
        """Called by `load_state`; a state that is loaded before `prepare` waits for it."""
        self._saved = read_state(Path(input_dir))
        if self.compressor is not None and self._saved is not None:
            self.compressor.load_state_dict(self._saved)


def write_state(folder: Path, saved: dict[str, Any]) -> None:
    """Puts a compressor's state into a checkpoint: the whole file or none."""
    written = folder / f"{FILE}.new"
    torch.save(saved, written)
    os.replace(written, folder / FILE)


def read_state(folder: Path) -> dict[str, Any] | None:
    """The state in a checkpoint; without one training goes on, with a warning."""
    if not (folder / FILE).exists():
        warnings.warn(f"{folder} has no state of thinwire: error feedback and auto begin anew", stacklevel=3)
        return None
    saved: dict[str, Any] = torch.load(folder / FILE, weights_only=True)
    return saved


def hooked(
    existing: DistributedDataParallelKwargs | None, attach: Callable[[nn.Module], None]
) -> DistributedDataParallelKwargs:
    """The accelerator's options of DDP with a communication hook of ours."""
    if getattr(existing, "of_thinwire", False):
        raise PlanError("compress was called for this accelerator before: leave the second call out")
    if existing is not None and existing.comm_hook != DDPCommunicationHookType.NO:
        raise PlanError(
            f"comm_hook={existing.comm_hook.value} and thinwire exclude one another: leave one out"
        )

    class Hooked(DistributedDataParallelKwargs):
        of_thinwire = True

        def register_comm_hook(self, model: nn.Module) -> None:
            attach(model)

    return Hooked(**({} if existing is None else existing.to_kwargs()))

"""Lightning: `Trainer(callbacks=[thinwire.lightning.Compression()])` compresses DDP and FSDP2."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.errors import PlanError
from thinwire.frameworks import require
from thinwire.hooks.ddp import CodecChoice, compress
from thinwire.hooks.fsdp_units import sharded_root

require("thinwire.lightning", lightning="2.6")
from lightning.pytorch import LightningModule, Trainer  # noqa: E402
from lightning.pytorch.callbacks import Callback  # noqa: E402


class Compression(Callback):
    """Compresses gradients from the start of `fit` on; takes what `tw.compress` takes.

    Its state is in Lightning's checkpoints, so a resumed run goes on with the same bits. Every `log_every`
    steps the ratio and the bytes of a step are logged as metrics, the ratio in the progress bar too.

    >>> trainer = Trainer(strategy="ddp", callbacks=[Compression("qsgd:4")])                  # doctest: +SKIP
    """

    def __init__(self, codec: CodecChoice = "auto", *, log_every: int = 50, **options: Any) -> None:
        self.codec, self.log_every, self.options = codec, log_every, options
        self.compressor: Any = None  # under DDP a Compressor, under FSDP2 a ShardedCompressor
        self._saved: dict[str, Any] | None = (
            None  # Lightning loads states before DDP exists, and after FSDP2 does
        )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = trainer.strategy.model
        if trainer.world_size == 1 and not isinstance(model, DistributedDataParallel):
            warnings.warn("one process sends no gradients: thinwire has nothing to compress", stacklevel=2)
            return
        if not isinstance(model, DistributedDataParallel):
            model = _sharded(model, type(trainer.strategy).__name__)
        known = {"optimizer": trainer.optimizers[0]} if len(trainer.optimizers) == 1 else {}
        self.compressor = compress(model, self.codec, **known | self.options)
        if self._saved is not None:
            self.compressor.load_state_dict(self._saved)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.compressor is not None and self._saved is None and trainer.ckpt_path is not None:
            warnings.warn(
                f"{trainer.ckpt_path} has no state of thinwire: error feedback and auto begin anew",
                stacklevel=2,
            )
        self._saved = None

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.compressor is None or (trainer.global_step - 1) % self.log_every:
            return
        numbers = self.compressor.report().headline()
        pl_module.log("thinwire/ratio", numbers.pop("thinwire/ratio"), prog_bar=True)
        pl_module.log_dict(numbers)

    def state_dict(self) -> dict[str, Any]:
        return {} if self.compressor is None else {"compressor": self.compressor.state_dict(gather=True)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._saved = state_dict.get("compressor")
        if self.compressor is not None and self._saved is not None:
            self.compressor.load_state_dict(self._saved)

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.compressor is not None:
            self.compressor.close()
            self.compressor = None


def _sharded(module: LightningModule, strategy: str) -> nn.Module:
    """What `configure_model` gave to `fully_shard`."""
    if (root := sharded_root(module)) is None:
        raise PlanError(
            f"Compression needs a strategy that ends in DDP or FSDP2, not {strategy}: use "
            'Trainer(strategy="ddp"), or ModelParallelStrategy with fully_shard in configure_model'
        )
    return root

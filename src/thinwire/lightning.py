"""Lightning: `Trainer(callbacks=[thinwire.lightning.Compression()])` compresses gradients under DDP."""

from __future__ import annotations

import warnings
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from thinwire.errors import PlanError
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.ddp import CodecChoice, compress

try:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import Callback
except ImportError as error:
    raise ImportError(
        'thinwire.lightning needs Lightning 2.6 or newer: pip install "lightning>=2.6"'
    ) from error


class Compression(Callback):
    """Compresses gradients from the start of `fit` on; takes what `tw.compress` takes.

    Its state is in Lightning's checkpoints, so a resumed run goes on with the same bits. Every `log_every`
    steps the ratio and the bytes of a step are logged as metrics, the ratio in the progress bar too.

    >>> trainer = Trainer(strategy="ddp", callbacks=[Compression("rotated")])                 # doctest: +SKIP
    """

    def __init__(self, codec: CodecChoice = "auto", *, log_every: int = 50, **options: Any) -> None:
        self.codec, self.log_every, self.options = codec, log_every, options
        self.compressor: Compressor | None = None
        self._saved: dict[str, Any] | None = None  # Lightning loads states before DDP exists

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        model = trainer.strategy.model
        if trainer.world_size == 1 and not isinstance(model, DistributedDataParallel):
            warnings.warn("one process sends no gradients: thinwire has nothing to compress", stacklevel=2)
            return
        if not isinstance(model, DistributedDataParallel):
            raise PlanError(
                f"Compression needs a strategy that ends in DDP, not {type(trainer.strategy).__name__}: use "
                'Trainer(strategy="ddp")'
            )
        known = {"optimizer": trainer.optimizers[0]} if len(trainer.optimizers) == 1 else {}
        self.compressor = compress(model, self.codec, **known | self.options)
        if self._saved is not None:
            self.compressor.load_state_dict(self._saved)
            self._saved = None
        elif trainer.ckpt_path is not None:
            warnings.warn(
                f"{trainer.ckpt_path} has no state of thinwire: error feedback and auto begin anew",
                stacklevel=2,
            )

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

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self.compressor is not None:
            self.compressor.close()
            self.compressor = None

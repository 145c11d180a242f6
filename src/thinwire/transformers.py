"""Transformers: `thinwire.transformers.compress(trainer)` compresses the gradients of a Trainer."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from torch import nn

from thinwire.errors import PlanError
from thinwire.frameworks import require
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.ddp import CodecChoice
from thinwire.hooks.ddp import compress as compress_ddp

require("thinwire.transformers", transformers="5.22", accelerate="1.15")
from transformers import (  # noqa: E402
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer_utils import get_last_checkpoint  # noqa: E402

from thinwire.accelerate import PLAIN, hooked, read_state, write_state  # noqa: E402

SETTLE_S = 0.1


def compress(trainer: Trainer, codec: CodecChoice = "auto", **options: Any) -> TrainerCompression:
    """Makes a Trainer send compressed gradients; takes what `tw.compress` takes. Call it before `train`.

    The Trainer's checkpoints have its state, its logs the ratio and the bytes of a step.

    >>> trainer = Trainer(model, args, train_dataset=data)                                   # doctest: +SKIP
    >>> compression = compress(trainer, "qsgd:4")                                            # doctest: +SKIP
    """
    accelerator = trainer.accelerator
    if accelerator.distributed_type not in PLAIN:
        raise PlanError(
            f"thinwire needs plain DDP, not {accelerator.distributed_type.value}: leave deepspeed= and fsdp= "
            "out of TrainingArguments"
        )
    if trainer.model_wrapped is not trainer.model:
        raise PlanError("this Trainer has trained already: call compress before its first train()")
    made = TrainerCompression(trainer, codec, options)
    accelerator.ddp_handler = hooked(accelerator.ddp_handler, made.attach)
    trainer.callback_handler.callbacks.insert(0, made)  # before those that show the logs
    return made


class TrainerCompression(TrainerCallback):
    """The callback behind `compress`; `compressor` is there once training has begun."""

    def __init__(self, trainer: Trainer, codec: CodecChoice, options: dict[str, Any]) -> None:
        self.codec, self.options = codec, options
        self.compressor: Compressor | None = None
        self._resumes: str | bool | None = None
        train = trainer.train

        def remembering(resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
            self._resumes = resume_from_checkpoint or trainer.args.resume_from_checkpoint
            return train(resume_from_checkpoint, *args, **kwargs)

        trainer.train = remembering

    def attach(self, model: nn.Module) -> None:
        """Called by the Trainer's accelerator with the DDP model that it made.

        A second `train()` goes on with this model; a Trainer with `model_init` makes and wraps another one.
        """
        if self.compressor is not None:
            self.compressor.close()
        self.compressor = compress_ddp(model, self.codec, **self.options)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Goes on from the checkpoint that training is resumed from."""
        folder = get_last_checkpoint(args.output_dir) if self._resumes is True else self._resumes
        if not folder or self.compressor is None:
            return
        if (saved := read_state(Path(folder))) is not None:
            self.compressor.load_state_dict(saved)

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Saves the state of all ranks beside the Trainer's own files; collective."""
        if self.compressor is None:
            return
        saved = self.compressor.state_dict(gather=True)
        if state.is_world_process_zero:
            write_state(Path(args.output_dir) / f"checkpoint-{state.global_step}", saved)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Lets a thread of gloo drop the tensors of the Trainer's last all-gather (`store_flos`).

        It needs the interpreter for that; when the interpreter is ending, it ends the process (SIGABRT).
        """
        time.sleep(SETTLE_S)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Adds ratio and bytes to what the Trainer logs."""
        if logs is not None and self.compressor is not None and "loss" in logs:
            numbers = self.compressor.report().headline()
            logs |= numbers
            state.log_history[-1] |= numbers

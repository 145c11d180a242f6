"""Small trainings through each framework; a process of torchrun (or a worker of Ray) each.

torchrun --standalone --nproc-per-node 2 tests/frontends/jobs.py FRAMEWORK CODEC FOLDER STEPS [STOP]

Trains STEPS steps; with STOP it stops there, and a second call goes on from the checkpoint. Rank 0 prints
the digest of the parameters and what was logged.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

EXAMPLES, EVERY = 64, 4
PLAIN = "plain"  # in place of a codec: without thinwire


def digest(net: nn.Module) -> str:
    """Of all parameters, bit for bit."""
    return hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in net.parameters())).hexdigest()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 4))


def examples() -> torch.utils.data.TensorDataset:
    draws = torch.Generator().manual_seed(1)
    x = torch.randn(EXAMPLES, 32, generator=draws)
    return torch.utils.data.TensorDataset(x, x[:, :4].argmax(1))


def lightning(codec: str, folder: Path, steps: int, stop: int | None) -> dict[str, Any]:
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint

    from thinwire.lightning import Compression

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    compression = [] if codec == PLAIN else [Compression(codec, log_every=1)]
    saver = ModelCheckpoint(folder, save_last=True, every_n_train_steps=EVERY, save_top_k=0)
    loader = torch.utils.data.DataLoader(examples(), batch_size=8)
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_steps=stop or steps,
        callbacks=[*compression, saver], logger=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    module = Classifier()
    last = folder / "last.ckpt"
    trainer.fit(module, loader, ckpt_path=last if last.exists() else None)
    shown = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return {"digest": digest(module.net), "shown": shown}


def fsdp2(codec: str, folder: Path, steps: int, stop: int | None) -> dict[str, Any]:
    """Lightning's ModelParallelStrategy; a checkpoint is a folder with the shards of all ranks."""
    from lightning.pytorch import LightningModule, Trainer
    from lightning.pytorch.callbacks import ModelCheckpoint
    from lightning.pytorch.strategies import ModelParallelStrategy
    from torch.distributed.fsdp import fully_shard

    from thinwire.lightning import Compression

    class Classifier(LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net: Any = net()

        def configure_model(self) -> None:
            for part in (self.net[0], self.net[2], self.net):
                fully_shard(part, mesh=self.device_mesh["data_parallel"])

        def training_step(self, batch: list[Tensor], index: int) -> Tensor:
            return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.05, momentum=0.9)

    compression = Compression(codec, log_every=1)
    saver = ModelCheckpoint(folder, filename="last", every_n_train_steps=8, save_top_k=1)
    strategy = ModelParallelStrategy(data_parallel_size=2, tensor_parallel_size=1)
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy=strategy,
        max_steps=stop or steps, callbacks=[compression, saver], logger=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    module, last = Classifier(), folder / "last.ckpt"
    loader = torch.utils.data.DataLoader(examples(), batch_size=8)
    trainer.fit(module, loader, ckpt_path=last if last.exists() else None)
    whole = [p.full_tensor().detach().numpy().tobytes() for p in module.net.parameters()]
    shown = {name: float(value) for name, value in trainer.callback_metrics.items()}
    return {"digest": hashlib.sha256(b"".join(whole)).hexdigest(), "shown": shown}


def accelerate(codec: str, folder: Path, steps: int, stop: int | None) -> dict[str, Any]:
    from accelerate import Accelerator

    from thinwire.accelerate import compress

    accelerator = Accelerator(cpu=True)
    compression = None if codec == PLAIN else compress(accelerator, codec)
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loader = torch.utils.data.DataLoader(examples(), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    done = 0
    if (folder / "step").exists():
        done = int((folder / "step").read_text())
        accelerator.load_state(str(folder / "state"))
    batches = list(loader)
    for step in range(done, stop or steps):
        x, y = batches[step % len(batches)]
        optimizer.zero_grad()
        accelerator.backward(nn.functional.cross_entropy(model(x), y))
        optimizer.step()
        if (step + 1) % EVERY == 0:
            accelerator.save_state(str(folder / "state"))
            if accelerator.is_main_process:
                (folder / "step").write_text(str(step + 1))
    shown = {} if compression is None else compression.metrics()
    accelerator.wait_for_everyone()
    return {"digest": digest(accelerator.unwrap_model(model)), "shown": shown}


def transformers(codec: str, folder: Path, steps: int, stop: int | None) -> dict[str, Any]:
    from transformers import Trainer, TrainingArguments

    from thinwire.transformers import compress

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            logits = self.net(x)
            return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}

    rows = [{"x": x, "labels": y} for x, y in zip(*examples().tensors, strict=True)]
    args = TrainingArguments(
        str(folder), max_steps=stop or steps, per_device_train_batch_size=8, save_strategy="steps",
        save_steps=EVERY, logging_steps=2, use_cpu=True, report_to=[], disable_tqdm=True, optim="sgd",
        learning_rate=0.05, lr_scheduler_type="constant",
    )  # fmt: skip
    trainer = Trainer(Classifier(), args, train_dataset=rows)
    if codec != PLAIN:
        compress(trainer, codec)
    trainer.train(resume_from_checkpoint=any(folder.glob("checkpoint-*")))
    shown = next(line for line in reversed(trainer.state.log_history) if "loss" in line)
    return {"digest": digest(trainer.model.net), "shown": shown}


if __name__ == "__main__":
    framework, codec, folder, steps, *stop = sys.argv[1:]
    warnings.simplefilter("ignore", DeprecationWarning)
    jobs = {"lightning": lightning, "fsdp2": fsdp2, "accelerate": accelerate, "transformers": transformers}
    answer = jobs[framework](codec, Path(folder), int(steps), int(stop[0]) if stop else None)
    if os.environ["RANK"] == "0":
        print("ANSWER " + json.dumps(answer), flush=True)
    sys.stdout.flush()
    # Not by the interpreter's end: on a busy machine a thread of gloo drops tensors of the Trainer's last
    # all-gather (store_flos) so late that it aborts. Ends of scripts are tests/distributed/test_exit.py's.
    os._exit(0)

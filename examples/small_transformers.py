"""A GPT-2-like or a ViT-like net, built from its config, through Transformers' Trainer or through Accelerate.

    torchrun --nproc-per-node 4 examples/small_transformers.py gpt2 trainer rotated --record runs.jsonl

Nets: gpt2 (tiny Shakespeare, by character), vit (CIFAR-10). Ways: trainer, accelerate. Codecs: ddp is plain
DDP, others are thinwire's. Data sets are read by thinwire-lab, so run it from the clone. Rank 0 writes one
JSON line: the loss of every few steps, the loss on test data, and how many fewer bytes were sent.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from thinwire_lab.data import Task, load_task

WIDTH, DEPTH, HEADS = 224, 4, 4
BATCH, LOG_EVERY, TEST = 12, 5, 480  # examples a worker, steps, test examples
LEARNING_RATE, WARM_UP = 1e-3, 20
TASKS = {"gpt2": "shakespeare", "vit": "cifar10"}


class Examples(Dataset[dict[str, Tensor]]):
    """What the nets of Transformers want: names and tensors."""

    def __init__(self, task: Task, part: str, limit: int | None = None) -> None:
        self.task, self.split = task, getattr(task, part)
        self.count = min(len(self.split), limit or len(self.split))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        x, y = self.task.batch(self.split, torch.tensor([index]).numpy())
        return (
            {"pixel_values": x[0], "labels": y[0]} if self.task.mean else {"input_ids": x[0], "labels": x[0]}
        )


def build(net: str, task: Task) -> nn.Module:
    """About 2.4 million parameters, drawn with seed 0."""
    torch.manual_seed(0)
    if net == "gpt2":
        from transformers import GPT2Config, GPT2LMHeadModel

        sizes = {"n_embd": WIDTH, "n_layer": DEPTH, "n_head": HEADS, "n_positions": task.train.x.shape[1]}
        drops = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
        symbols = {"vocab_size": task.classes, "bos_token_id": 0, "eos_token_id": 0}
        return GPT2LMHeadModel(GPT2Config(**sizes, **drops, **symbols))
    from transformers import ViTConfig, ViTForImageClassification

    sizes = {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "num_attention_heads": HEADS}
    shapes = {"intermediate_size": 4 * WIDTH, "image_size": 32, "patch_size": 4, "num_labels": task.classes}
    return ViTForImageClassification(ViTConfig(**sizes, **shapes))


def through_trainer(model: nn.Module, task: Task, codec: str, steps: int) -> dict[str, Any]:
    """Trainer's own loop, optimizer and schedule."""
    from transformers import Trainer, TrainingArguments

    import thinwire.transformers

    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, max_steps=steps, per_device_train_batch_size=BATCH, per_device_eval_batch_size=BATCH,
            learning_rate=LEARNING_RATE, warmup_steps=WARM_UP, logging_steps=LOG_EVERY, save_strategy="no",
            use_cpu=True, report_to=[], disable_tqdm=True, seed=0, ddp_find_unused_parameters=False,
        )  # fmt: skip
        trainer = Trainer(
            model, args, train_dataset=Examples(task, "train"), eval_dataset=Examples(task, "test", TEST)
        )
        if codec != "ddp":
            thinwire.transformers.compress(trainer, codec)
        trainer.train()
        logs = [line for line in trainer.state.log_history if "loss" in line]
        test_loss = trainer.evaluate()["eval_loss"]
    shown = {name: value for name, value in logs[-1].items() if name.startswith("thinwire/")}
    curve = [(line["step"], round(line["loss"], 4)) for line in logs]
    return {"curve": curve, "test_loss": test_loss, **shown}


def through_accelerate(model: nn.Module, task: Task, codec: str, steps: int) -> dict[str, Any]:
    """A loop of one's own, prepared by Accelerate."""
    from accelerate import Accelerator
    from transformers import get_linear_schedule_with_warmup

    import thinwire.accelerate

    accelerator = Accelerator(cpu=True)
    compression = None if codec == "ddp" else thinwire.accelerate.compress(accelerator, codec)
    optimizer = torch.optim.AdamW(model.parameters(), LEARNING_RATE, weight_decay=0.0)
    order = torch.Generator().manual_seed(0)
    loader = DataLoader(Examples(task, "train"), BATCH, shuffle=True, generator=order)
    tests = DataLoader(Examples(task, "test", TEST), BATCH)
    model, optimizer, loader, tests = accelerator.prepare(model, optimizer, loader, tests)
    schedule = get_linear_schedule_with_warmup(optimizer, WARM_UP, steps)
    curve: list[tuple[int, float]] = []
    losses: list[Tensor] = []
    for step, batch in zip(range(1, steps + 1), loader, strict=False):
        loss = model(**batch).loss
        accelerator.backward(loss)
        accelerator.clip_grad_norm_(model.parameters(), 1.0)  # as the Trainer does
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
        if step % LOG_EVERY == 0:
            curve.append((step, round(accelerator.gather(torch.stack(losses)).mean().item(), 4)))
            losses = []
    model.eval()
    with torch.no_grad():
        found = torch.stack([model(**batch).loss for batch in tests])
    test_loss = accelerator.gather(found).mean().item()
    return {
        "curve": curve,
        "test_loss": test_loss,
        **({} if compression is None else compression.metrics()),
    }


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    asked.add_argument("net", choices=TASKS)
    asked.add_argument("way", choices=("trainer", "accelerate"))
    asked.add_argument("codec")
    asked.add_argument("--steps", type=int, default=200)
    asked.add_argument("--data", type=Path, help="folder of data sets; default: a cache, filled by download")
    asked.add_argument("--record", type=Path, help="file of JSON lines")
    given = asked.parse_args()
    torch.set_num_threads(1)
    task = load_task(TASKS[given.net], given.data)
    model, begin = build(given.net, task), time.perf_counter()
    parameters = sum(p.numel() for p in model.parameters())
    train = {"trainer": through_trainer, "accelerate": through_accelerate}[given.way]
    found = train(model, task, given.codec, given.steps)
    if os.environ.get("RANK", "0") != "0":
        return
    record = {
        "net": given.net,
        "way": given.way,
        "codec": given.codec,
        "workers": int(os.environ.get("WORLD_SIZE", "1")),
        "steps": given.steps,
        "parameters": parameters,
        "seconds": round(time.perf_counter() - begin, 1),
        "versions": {name: version(name) for name in ("torch", "transformers", "accelerate")},
        **found,
    }
    print(json.dumps(record), flush=True)
    if given.record is not None:
        with given.record.open("a") as lines:
            lines.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main()

"""Transformers' Trainer with compressed gradients: one import, and one line before `train`.

torchrun --standalone --nproc-per-node 2 examples/train_transformers.py
"""

import tempfile

import torch
from torch import nn
from transformers import Trainer, TrainingArguments

import thinwire.transformers

EXAMPLES, BATCH, CLASSES = 4_000, 64, 10


def clouds() -> list[dict[str, torch.Tensor]]:
    """Ten clouds of points in 64 dimensions."""
    draw = torch.Generator().manual_seed(0)
    centers, labels = torch.randn(CLASSES, 64, generator=draw), torch.arange(EXAMPLES) % CLASSES
    points = centers[labels] + 2.0 * torch.randn(EXAMPLES, 64, generator=draw)
    return [{"x": x, "labels": label} for x, label in zip(points, labels, strict=True)]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
        )

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        logits = self.net(x)
        return {"loss": nn.functional.cross_entropy(logits, labels), "logits": logits}


def main() -> None:
    torch.manual_seed(0)
    data = clouds()
    with tempfile.TemporaryDirectory() as folder:
        args = TrainingArguments(
            folder, per_device_train_batch_size=BATCH, num_train_epochs=2, learning_rate=3e-3,
            logging_steps=10, save_strategy="no", use_cpu=True, report_to=[], disable_tqdm=True,
        )  # fmt: skip
        trainer = Trainer(Classifier(), args, train_dataset=data)
        thinwire.transformers.compress(trainer, "qsgd:4")
        trainer.train()
    if trainer.is_world_process_zero():
        x, labels = (torch.stack([row[name] for row in data]) for name in ("x", "labels"))
        print(f"accuracy {(trainer.model.net(x).argmax(1) == labels).float().mean():.3f}")
        shown = next(line for line in reversed(trainer.state.log_history) if "thinwire/ratio" in line)
        print(f"{shown['thinwire/ratio']:.1f}x fewer bytes")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

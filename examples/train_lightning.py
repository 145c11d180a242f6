"""Lightning with compressed gradients: one callback.

torchrun --standalone --nproc-per-node 2 examples/train_lightning.py
"""

import torch
from lightning.pytorch import LightningModule, Trainer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from thinwire.lightning import Compression

EXAMPLES, BATCH, CLASSES = 4_000, 64, 10


def clouds() -> TensorDataset:
    """Ten clouds of points in 64 dimensions."""
    draw = torch.Generator().manual_seed(0)
    centers, labels = torch.randn(CLASSES, 64, generator=draw), torch.arange(EXAMPLES) % CLASSES
    return TensorDataset(centers[labels] + 2.0 * torch.randn(EXAMPLES, 64, generator=draw), labels)


class Classifier(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
        )

    def training_step(self, batch: list[torch.Tensor], index: int) -> torch.Tensor:
        return nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def main() -> None:
    torch.manual_seed(0)
    module, data = Classifier(), clouds()
    trainer = Trainer(
        accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, logger=False, enable_checkpointing=False,
        callbacks=[Compression("qsgd:4")],
    )  # fmt: skip
    trainer.fit(module, DataLoader(data, BATCH, shuffle=True))
    if trainer.is_global_zero:
        x, labels = data.tensors
        print(f"accuracy {(module.net(x).argmax(1) == labels).float().mean():.3f}")
        print(f"{trainer.callback_metrics['thinwire/ratio']:.1f}x fewer bytes")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()

"""Accelerate with compressed gradients: one import, and one line before `prepare`.

torchrun --standalone --nproc-per-node 2 examples/train_accelerate.py
"""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import thinwire.accelerate

EXAMPLES, BATCH, CLASSES = 4_000, 64, 10


def clouds() -> TensorDataset:
    """Ten clouds of points in 64 dimensions."""
    draw = torch.Generator().manual_seed(0)
    centers, labels = torch.randn(CLASSES, 64, generator=draw), torch.arange(EXAMPLES) % CLASSES
    return TensorDataset(centers[labels] + 2.0 * torch.randn(EXAMPLES, 64, generator=draw), labels)


def main() -> None:
    torch.manual_seed(0)
    accelerator, data = Accelerator(cpu=True), clouds()
    net = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    compression = thinwire.accelerate.compress(accelerator, "qsgd:4")
    model, optimizer, loader = accelerator.prepare(net, optimizer, DataLoader(data, BATCH, shuffle=True))
    for _ in range(2):
        for x, labels in loader:
            optimizer.zero_grad()
            accelerator.backward(nn.functional.cross_entropy(model(x), labels))
            optimizer.step()
    if accelerator.is_main_process:
        x, labels = data.tensors
        print(f"accuracy {(net(x).argmax(1) == labels).float().mean():.3f}")
        print(f"{compression.metrics()['thinwire/ratio']:.1f}x fewer bytes")
    accelerator.end_training()


if __name__ == "__main__":
    main()

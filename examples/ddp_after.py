"""The same training with compressed gradients; `diff ddp_before.py ddp_after.py` shows the change.

torchrun --standalone --nproc-per-node 2 examples/ddp_after.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

STEPS, BATCH, CLASSES = 60, 64, 10


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten clouds of points in 64 dimensions: every rank draws its own."""
    centers = torch.randn(CLASSES, 64, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1 + 2 * step + rank)
    labels = torch.randint(CLASSES, (BATCH,), generator=draw)
    return centers[labels] + 2.0 * torch.randn(BATCH, 64, generator=draw), labels


def train() -> None:
    """A function of its own: a DDP model freed after its group may never end (pytorch issue 56297)."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    model = DistributedDataParallel(net)
    compressor = tw.compress(model, "auto")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, labels = batch(step, dist.get_rank())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    if dist.get_rank() == 0:
        x, labels = batch(STEPS, 0)
        print(f"accuracy {(net(x).argmax(1) == labels).float().mean():.3f}")
        print(compressor.report())
    compressor.close()


def main() -> None:
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

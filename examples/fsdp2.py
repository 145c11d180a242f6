"""FSDP2 with gradients in 4 bits: one line behind `fully_shard`.

torchrun --standalone --nproc-per-node 2 examples/fsdp2.py
"""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

import thinwire as tw

STEPS, BATCH, CLASSES = 60, 64, 10


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten clouds of points in 64 dimensions: every rank draws its own."""
    centers = torch.randn(CLASSES, 64, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1 + 2 * step + rank)
    labels = torch.randint(CLASSES, (BATCH,), generator=draw)
    return centers[labels] + 2.0 * torch.randn(BATCH, 64, generator=draw), labels


def train() -> None:
    torch.manual_seed(0)
    blocks = [nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)) for _ in range(2)]
    model = nn.Sequential(*blocks, nn.Linear(64, CLASSES))
    for block in blocks:
        fully_shard(block)
    fully_shard(model)
    compressor = tw.compress(model, "qsgd:4")  # weights="qsgd:8" compresses the all-gathers too
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, labels = batch(step, dist.get_rank())
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    x, labels = batch(STEPS, 0)
    with torch.no_grad():
        accuracy = (model(x).argmax(1) == labels).float().mean()  # all ranks: weights are gathered
    if dist.get_rank() == 0:
        print(f"accuracy {accuracy:.3f}")
        print(compressor.plan)
        print(compressor.report())
    compressor.close()


def main() -> None:
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

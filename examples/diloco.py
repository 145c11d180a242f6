"""Local steps: every rank trains by itself, and all exchange what they have learnt every 10 steps, in 4 bits.

torchrun --standalone --nproc-per-node 2 examples/diloco.py
"""

import torch
import torch.distributed as dist
from torch import nn

import thinwire as tw

STEPS, BATCH, CLASSES = 60, 64, 10


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten clouds of points in 64 dimensions: every rank draws its own."""
    centers = torch.randn(CLASSES, 64, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1 + 2 * step + rank)
    labels = torch.randint(CLASSES, (BATCH,), generator=draw)
    return centers[labels] + 2.0 * torch.randn(BATCH, 64, generator=draw), labels


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.003)
    with tw.DiLoCo(net, every=10, codec="qsgd:4", outer_lr=0.9, outer_momentum=0.5) as diloco:
        for step in range(STEPS):
            x, labels = batch(step, dist.get_rank())
            optimizer.zero_grad()
            nn.functional.cross_entropy(net(x), labels).backward()
            optimizer.step()
            diloco.step()
        diloco.sync()  # 60 steps are whole rounds; else this ends the last one
        report = diloco.report()
    if dist.get_rank() == 0:
        x, labels = batch(STEPS, 0)
        print(f"accuracy {(net(x).argmax(1) == labels).float().mean():.3f}")
        print(f"{report.ratio * diloco.every:.0f}x fewer bytes than DDP")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

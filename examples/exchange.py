"""A loop that owns its gradients: their means over all ranks, in 4 bits, without DDP.

torchrun --standalone --nproc-per-node 2 examples/exchange.py
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
    torch.manual_seed(0)  # the same net on all ranks
    net = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    gradients = {name: torch.empty_like(p) for name, p in net.named_parameters()}
    with tw.Exchange(gradients, "qsgd:4") as exchange:
        for step in range(STEPS):
            x, labels = batch(step, dist.get_rank())
            loss = nn.functional.cross_entropy(net(x), labels)
            found = torch.autograd.grad(loss, list(net.parameters()))
            for own, gradient in zip(gradients.values(), found, strict=True):
                own.copy_(gradient)
            exchange.mean_()
            with torch.no_grad():
                for parameter, mean in zip(net.parameters(), gradients.values(), strict=True):
                    parameter.sub_(mean, alpha=0.1)
        report = exchange.report()
    if dist.get_rank() == 0:
        x, labels = batch(STEPS, 0)
        print(f"accuracy {(net(x).argmax(1) == labels).float().mean():.3f}")
        print(report)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

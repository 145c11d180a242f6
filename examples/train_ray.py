"""Ray Train with compressed gradients: thinwire's `prepare_model` in place of Ray's.

python examples/train_ray.py
"""

import ray
import torch
from ray.train import ScalingConfig, get_context
from ray.train.torch import TorchConfig, TorchTrainer
from torch import nn

import thinwire.ray

STEPS, BATCH, CLASSES = 60, 64, 10


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ten clouds of points in 64 dimensions: every rank draws its own."""
    centers = torch.randn(CLASSES, 64, generator=torch.Generator().manual_seed(0))
    draw = torch.Generator().manual_seed(1 + 2 * step + rank)
    labels = torch.randint(CLASSES, (BATCH,), generator=draw)
    return centers[labels] + 2.0 * torch.randn(BATCH, 64, generator=draw), labels


def train() -> None:
    """What every worker does."""
    torch.manual_seed(0)
    rank = get_context().get_world_rank()
    net = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )
    model, compressor = thinwire.ray.prepare_model(net, "qsgd:4")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(STEPS):
        x, labels = batch(step, rank)
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimizer.step()
    if rank == 0 and compressor is not None:  # a single worker has none
        x, labels = batch(STEPS, 0)
        print(f"accuracy {(net(x).argmax(1) == labels).float().mean():.3f}")
        print(f"{compressor.report().headline()['thinwire/ratio']:.1f}x fewer bytes")


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    gloo, two = TorchConfig(backend="gloo"), ScalingConfig(num_workers=2)
    TorchTrainer(train, torch_config=gloo, scaling_config=two).fit()


if __name__ == "__main__":
    main()

"""What the tests of transforms share: signals, and what a codec makes of them."""

from __future__ import annotations

import torch
from torch import Tensor

from packing import bound, one_tensor, pack
from thinwire.kernels import Kernels

SIZES = (1, 2, 3, 4, 5, 31, 64, 65, 100, 1009, 4096, 4097, 8193, 10_000)
CHUNKS = (2, 6, 64, 4096, 100_000, "tensor")


def white(numel: int, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def ar1(numel: int, rho: float, seed: int = 0) -> Tensor:
    """Neighbours correlate: x_t = rho x_(t-1) + sqrt(1 - rho^2) e_t."""
    noise, found = white(numel, seed).tolist(), [0.0]
    for e in noise:
        found.append(rho * found[-1] + (1 - rho * rho) ** 0.5 * e)
    return torch.tensor(found[1:])


def coordinates(text: str, x: Tensor) -> Tensor:
    """What the first stage of a codec makes of x."""
    return bound(text, one_tensor(x.numel())).stages[0].forward(x, x.new_empty(0))


def sent(text: str, x: Tensor, kernels: Kernels | None = None) -> Tensor:
    """What the payload of x stands for."""
    return pack(text, one_tensor(x.numel()), [x], kernels=kernels).own(0, x)


def energy(x: Tensor) -> float:
    return x.double().square().sum().item()


def loss(text: str, x: Tensor) -> float:
    """The share of the energy of x that a codec drops."""
    return energy(x - sent(text, x)) / energy(x)

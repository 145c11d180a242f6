"""What ranks of FSDP2 tests do: small models in units, steps, and what they end with."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import thinwire as tw


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 64), nn.Linear(64, width)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = x + self.down(torch.relu(self.up(self.norm(x))))
        return y


class Net(nn.Module):
    """An embedding, blocks, and a read-out that may share the embedding's weight."""

    def __init__(self, width: int = 48, depth: int = 2, tied: bool = False) -> None:
        super().__init__()
        self.token = nn.Embedding(50, width)
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.read_out = nn.Linear(width, 50, bias=False)
        if tied:
            self.read_out.weight = self.token.weight

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.token(symbols)
        for block in self.blocks:
            x = block(x)
        y: Tensor = self.read_out(x)
        return y


def sharded(
    *,
    tied: bool = False,
    frozen: bool = False,
    reshard: bool | None = None,
    mixed: str | None = None,
    reduce: str | None = None,
    width: int = 48,
) -> Net:
    torch.manual_seed(3)
    net = Net(width, tied=tied)
    if frozen:
        net.blocks[0].requires_grad_(False)
    policy = MixedPrecisionPolicy(param_dtype=_dtype(mixed), reduce_dtype=_dtype(reduce))
    options: dict[str, Any] = {"mp_policy": policy}
    if reshard is not None:
        options["reshard_after_forward"] = reshard
    for block in net.blocks:
        fully_shard(block, **options)
    fully_shard(net, **options)
    return net


def _dtype(name: str | None) -> torch.dtype | None:
    return None if name is None else getattr(torch, name)


def batch(step: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(100 * step + dist.get_rank())
    x = torch.randint(0, 50, (8, 12), generator=draw)
    return x, (x * 7 + 3) % 50


def train(net: nn.Module, steps: int, start: int = 0, optimizer: Any = None) -> list[float]:
    optimizer = optimizer or torch.optim.AdamW(net.parameters(), lr=0.01)
    losses = []
    for step in range(start, start + steps):
        x, y = batch(step)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1).float(), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def whole(net: nn.Module) -> dict[str, Tensor]:
    """The parameters, gathered."""
    named: Any = net.named_parameters()
    return {name: p.full_tensor().detach() for name, p in named}


@contextlib.contextmanager
def compressed(net: nn.Module, codec: Any, **options: Any) -> Iterator[Any]:
    with warnings.catch_warnings(), tw.compress(net, codec, **options) as compressor:
        yield compressor


def mesh(replicas: int, shards: int) -> Any:
    return init_device_mesh("cpu", (replicas, shards), mesh_dim_names=("replicate", "shard"))

"""The other workers of a run: processes that meet over the network, or nobody, if all are in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
import torch.distributed as dist
from torch import nn


class Peers(ABC):
    """What the processes of a run do together beside exchanging gradients."""

    rank: int
    size: int  # processes

    @abstractmethod
    def meet(self) -> None:
        """Wait for all."""

    @abstractmethod
    def sums(self, numbers: list[float]) -> list[float]:
        """Every number added up over all processes."""

    @abstractmethod
    def take_buffers(self, net: nn.Module) -> None:
        """Take over the first process's running statistics, as DDP does before every forward pass."""

    @abstractmethod
    def everyones(self, words: bytes) -> list[bytes]:
        """What every process says; all say as much."""


class Processes(Peers):
    """One worker in each process, joined by torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def meet(self) -> None:
        dist.barrier()

    def sums(self, numbers: list[float]) -> list[float]:
        summed = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(summed)
        return [float(number) for number in summed]

    def take_buffers(self, net: nn.Module) -> None:
        for buffer in net.buffers():
            dist.broadcast(buffer, 0)

    def everyones(self, words: bytes) -> list[bytes]:
        mine = torch.tensor(list(words), dtype=torch.uint8)
        told = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(told, mine)
        return [bytes(each.tolist()) for each in told]


class Nobody(Peers):
    """All workers of the run are in this process."""

    rank, size = 0, 1

    def meet(self) -> None:
        """Nobody to wait for."""

    def sums(self, numbers: list[float]) -> list[float]:
        return numbers

    def take_buffers(self, net: nn.Module) -> None:
        """They are the first worker's."""

    def everyones(self, words: bytes) -> list[bytes]:
        return [words]

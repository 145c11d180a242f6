"""Together: what all ranks of a group do in a probe at the same time, and the numbers that all then hold."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire.groups.base import Group

CPU = torch.device("cpu")


def refuse_one(group: Group) -> None:
    """A group of one has no link."""
    if group.size < 2:
        raise LabError(
            f"a probe of a group of {group.size} measures nothing: there is no link; start at least "
            "2 workers, as in torchrun --nproc-per-node 2"
        )


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def barrier(group: Group, device: torch.device = CPU) -> None:
    _gathered(group, torch.zeros(8, dtype=torch.uint8, device=device))  # straight to every peer: one hop
    synchronize(device)


def medians(group: Group, values: Sequence[float], device: torch.device = CPU) -> list[float]:
    """Each number's median over the ranks: the same bits on all of them."""
    mine = torch.tensor(values, dtype=torch.float64).view(torch.uint8).to(device)
    return [statistics.median(column) for column in zip(*_gathered(group, mine), strict=True)]


def largest(group: Group, values: Sequence[float], device: torch.device = CPU) -> list[float]:
    """Each number's largest over the ranks: the same bits on all of them."""
    mine = torch.tensor(values, dtype=torch.float64).view(torch.uint8).to(device)
    return [max(column) for column in zip(*_gathered(group, mine), strict=True)]


def _gathered(group: Group, mine: Tensor) -> list[list[float]]:
    everyone = mine.new_empty(group.size, mine.numel())
    group.all_gather(mine, everyone).wait()
    return [row.cpu().contiguous().view(torch.float64).tolist() for row in everyone]


def gathered_bytes(group: Group, data: bytes, device: torch.device = CPU) -> list[bytes]:
    """What every rank has, which may differ in length, on all ranks."""
    sizes = _gathered(group, torch.tensor([len(data)], dtype=torch.float64).view(torch.uint8).to(device))
    longest = max(1, int(max(size for (size,) in sizes)))
    mine = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8).to(device)
    everyone = mine.new_empty(group.size, longest)
    group.all_gather(mine, everyone).wait()
    rows = zip(everyone.cpu(), sizes, strict=True)
    return [row[: int(size)].numpy().tobytes() for row, (size,) in rows]


def first_bytes(group: Group, data: bytes, device: torch.device = CPU) -> bytes:
    """What the first rank has, on all ranks."""
    return gathered_bytes(group, data, device)[0]

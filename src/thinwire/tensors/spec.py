"""A spec: what a tensor is without its data."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Spec:
    """Name, shape and dtype of a tensor, no data.

    >>> Spec("conv.weight", (8, 3, 3, 3)).numel
    216
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    unit: int = 0  # a tensor that is coded in several pieces: which of them this is

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def key(self) -> str:
        """What random draws go by: the name, and the unit if it is not the first."""
        return f"{self.name}[{self.unit}]" if self.unit else self.name

    def __str__(self) -> str:
        return f"{self.key}{list(self.shape)}:{str(self.dtype).removeprefix('torch.')}"

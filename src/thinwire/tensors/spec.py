"""A spec: what a tensor is without its data."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

_SHORT = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}


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
    def nbytes(self) -> int:
        """Of its elements as they are."""
        return self.numel * self.dtype.itemsize

    @property
    def key(self) -> str:
        """What random draws go by: the name, and the unit if it is not the first."""
        return f"{self.name}[{self.unit}]" if self.unit else self.name

    def __str__(self) -> str:
        return f"{self.key}{list(self.shape)}:{str(self.dtype).removeprefix('torch.')}"


def plain_name(specs: Iterable[Spec]) -> str:
    """What people call gradients that are sent as they are: "fp32" if all are, "plain" if they differ.

    >>> plain_name([Spec("a", (2,)), Spec("b", (3,))])
    'fp32'
    """
    dtypes = {spec.dtype for spec in specs}
    return _SHORT.get(dtypes.pop(), "plain") if len(dtypes) == 1 else "plain"

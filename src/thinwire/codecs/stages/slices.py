"""A tensor cut into slices of equal length, in the order of memory or with the channels fastest."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from thinwire.tensors.spec import Spec

MEMORY, CHANNEL = "memory", "channel"
ROW = -1  # instead of a length: a slice is a row of the tensor's matrix
LONGEST = 1024  # elements of a slice that is a row: its owner keeps the square of that, and its eigenvectors


@dataclass(frozen=True)
class Slices:
    """The geometry of one tensor: `count` slices of `length` elements and a tail.

    Order "memory" is the tensor as it lies. Order "channel" turns a convolution's weight (filters, channels,
    height, width) to (filters, height, width, channels): neighbours are the channels of one place.
    """

    spec: Spec
    length: int

    @property
    def count(self) -> int:
        return self.spec.numel // self.length

    @property
    def tail(self) -> int:
        return self.spec.numel % self.length

    @cached_property
    def has_channels(self) -> bool:
        """Whether the two orders differ."""
        return len(self.spec.shape) > 2 and self.spec.shape[1] > 1 and self._places > 1

    @property
    def _places(self) -> int:
        return self.spec.numel // max(1, self.spec.shape[0] * self.spec.shape[1])

    def ordered(self, x: Tensor, order: str) -> Tensor:
        """The tensor's elements in an order: x itself, or a copy."""
        if order == MEMORY or not self.has_channels:
            return x
        return x.view(*self.spec.shape[:2], self._places).transpose(1, 2).reshape(-1)

    def restore(self, ordered: Tensor, order: str, x: Tensor) -> None:
        """Undoes `ordered`: writes the elements to x."""
        filters, channels = self.spec.shape[:2]
        source = ordered.view(filters, self._places, channels).transpose(1, 2)
        x.view(filters, channels, self._places).copy_(source)

    def matrix(self, ordered: Tensor) -> Tensor:
        """Its slices as rows."""
        return ordered[: self.count * self.length].view(self.count, self.length)


@dataclass(frozen=True)
class Cut:
    """Slices first..last of a tensor, and its tail if they end it: where they lie in the result."""

    slices: Slices
    piece: slice  # of the tensor, in the lane
    width: int
    start: int  # of the tensor's numbers, in the result; negative if the result begins behind it
    first: int
    last: int

    @property
    def tail(self) -> int:
        return self.slices.tail if self.last == self.slices.count else 0

    def rows(self, y: Tensor) -> Tensor:
        """Their coordinates, one row a slice."""
        low, high = self.start + self.first * self.width, self.start + self.last * self.width
        return y[low:high].view(-1, self.width)

    def tail_in(self, y: Tensor) -> Tensor:
        end = self.start + self.last * self.width
        return y[end : end + self.tail]


def row_slice(spec: Spec) -> int:
    """Elements of a slice of a tensor whose slices are rows: a row, or the longest equal piece allowed.

    >>> [row_slice(Spec("", shape)) for shape in [(10, 800), (64, 32, 3, 3), (4096, 25088), (16,)]]
    [800, 288, 896, 1]
    """
    row = spec.numel // max(1, spec.shape[0]) if spec.shape else 1
    return next(length for length in range(min(row, LONGEST), 0, -1) if row % length == 0) if row else 1


def read_slice(text: str) -> int:
    """Reads a length; "row" is ROW."""
    if text != "row" and int(text) < 0:
        raise ValueError(text)
    return ROW if text == "row" else int(text)


def show_slice(slice: int) -> str:
    return "row" if slice == ROW else str(slice)


def orders_of(slices: Slices, order: str) -> tuple[str, ...]:
    """The orders that are tried for a tensor under the option `order`."""
    if not slices.has_channels:
        return (MEMORY,)
    return (MEMORY, CHANNEL) if order == "auto" else (order,)


def scalar(value: float) -> Tensor:
    """A number as something known."""
    return torch.tensor(float(value), dtype=torch.float64)

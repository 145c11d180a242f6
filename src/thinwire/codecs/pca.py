"""Slices of tensors, their second moments, and the principal components that follow (for GradiVeQ)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

from thinwire.codecs.stage import OWNED, exponent
from thinwire.kernels.base import ProductsKernels
from thinwire.kernels.reference.linalg import folded
from thinwire.tensors import Spec

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


_AT_ONCE = 256  # samples whose squares are added up in float32
_STRIP = 64  # rows of a symmetric table that are filled from their diagonal block on


@dataclass(frozen=True)
class Moments:
    """Number, sum and second moment of sample slices, kept in what is known of a tensor (float64).

    Ranks that do not own the tensor hold zeros that take no room.
    """

    known: dict[str, Tensor]
    order: str
    length: int
    kernels: ProductsKernels

    def _get(self, what: str) -> Tensor:
        return self.known[self._name(what)]

    def _name(self, what: str) -> str:
        return f"{OWNED}{self.order} {what}"

    def start(self, owned: bool, device: torch.device) -> None:
        """Begins anew, without a sample."""
        shapes = {"count": (1,), "sum": (self.length,), "square": (self.length, self.length)}
        for what, shape in shapes.items():
            zero = torch.zeros((), dtype=torch.float64, device=device).expand(shape)
            self.known[self._name(what)] = zero.contiguous() if owned else zero

    def add(self, rows: Tensor, loss_scale: float) -> None:
        """Takes rows as samples: sum += g, square += g g^T.

        In one order: squares of a few rows in float32, the sums of those in float64. Rows are squared near 1,
        so that tiny ones do not vanish and huge ones do not overflow.
        """
        power = exponent(rows)
        total = rows.new_zeros(self.length, dtype=torch.float64)
        square = rows.new_zeros(self.length, self.length, dtype=torch.float64)
        table, nothing = rows.new_zeros(self.length, self.length), rows.new_empty(0)
        for samples in torch.split(rows, _AT_ONCE):
            few = samples * 2.0**-power
            for low in range(0, self.length, _STRIP):
                high = low + _STRIP
                self.kernels.product(few[:, low:high].t(), few[:, low:], nothing, table[low:high, low:])
            total += folded(samples.double())
            square += table
        square = square.triu() + square.triu(1).t()
        if bool(square.isfinite().all()):
            self._get("count").add_(rows.shape[0])
            self._get("sum").add_(total.div_(loss_scale))
            self._get("square").add_(square.mul_(4.0**power).div_(loss_scale * loss_scale))

    def components(self) -> Components:
        """Mean and eigenvectors of the covariance, largest first; the peak of each is positive."""
        count = self._get("count").clamp(min=1)
        mean = self._get("sum") / count
        covariance = self._get("square") / count - torch.outer(mean, mean)
        values, power = torch.empty_like(mean), exponent(covariance)
        covariance *= 2.0**-power
        self.kernels.eigen(covariance, values)
        values *= 2.0**power
        order = values.argsort(descending=True, stable=True)
        values, rows = values[order].clamp(min=0), covariance[order]
        peaks = rows.gather(1, rows.abs().argmax(1, keepdim=True))
        return Components(self.order, mean, values, (rows * peaks.sign()).t())


@dataclass(frozen=True)
class Components:
    """mu, and the eigenvalues and eigenvectors (columns) of Sigma."""

    order: str
    mean: Tensor
    values: Tensor
    vectors: Tensor

    def energy(self, width: int) -> float:
        """The share of the variance that the first `width` eigenvectors hold."""
        total = math.fsum(self.values.tolist())
        return math.fsum(self.values[:width].tolist()) / total if total > 0 else 1.0

    def dropped(self, width: int) -> float:
        """The variance that they do not hold."""
        return math.fsum(self.values[width:].tolist())

    def width(self, energy: float, most: int) -> int:
        """The fewest eigenvectors that hold a share of the variance, at least one and at most `most`."""
        values: list[float] = self.values.tolist()
        enough = energy * math.fsum(values)
        return min(most, 1 + sum(held < enough for held in accumulate(values)))

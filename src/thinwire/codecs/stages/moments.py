"""What the owner of a tensor collects of its slices, and the principal components that follow from it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from thinwire.codecs.stages.base import OWNED
from thinwire.codecs.stages.scaling import exponent
from thinwire.kernels.base import ProductsKernels
from thinwire.kernels.reference.folding import folded

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

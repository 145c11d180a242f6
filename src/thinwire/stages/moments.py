"""What the owner of a tensor collects of its slices, and the principal components that follow from it."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.stages.base import OWNED


@dataclass(frozen=True)
class Moments:
    """Number, sum and second moment of sample slices, kept in a tensor's notes (float64).

    Ranks that do not own the tensor hold zeros that take no room.
    """

    note: dict[str, Tensor]
    order: str
    length: int

    def _get(self, what: str) -> Tensor:
        return self.note[self._name(what)]

    def _name(self, what: str) -> str:
        return f"{OWNED}{self.order} {what}"

    def start(self, owned: bool, device: torch.device) -> None:
        """Begins anew, without a sample."""
        shapes = {"count": (1,), "sum": (self.length,), "square": (self.length, self.length)}
        for what, shape in shapes.items():
            zero = torch.zeros((), dtype=torch.float64, device=device).expand(shape)
            self.note[self._name(what)] = zero.contiguous() if owned else zero

    def add(self, rows: Tensor, unit: float) -> None:
        """Takes rows as samples: sum += g, square += g g^T; left out if squares overflow."""
        square = torch.mm(rows.t(), rows).double().div_(unit * unit)
        if bool(torch.isfinite(square.sum())):
            self._get("count").add_(rows.shape[0])
            self._get("sum").add_(rows.sum(0, dtype=torch.float64).div_(unit))
            self._get("square").add_(square)

    def components(self) -> Components:
        """Mean and eigenvectors of the covariance, largest first; the peak of each is positive."""
        count = self._get("count").clamp(min=1)
        mean = self._get("sum") / count
        covariance = self._get("square") / count - torch.outer(mean, mean)
        values, vectors = torch.linalg.eigh(covariance)
        values, vectors = values.flip(0).clamp(min=0), vectors.flip(1)
        peaks = vectors.gather(0, vectors.abs().argmax(0, keepdim=True))
        return Components(self.order, mean, values, vectors * peaks.sign())


@dataclass(frozen=True)
class Components:
    """mu, and the eigenvalues and eigenvectors (columns) of Sigma."""

    order: str
    mean: Tensor
    values: Tensor
    vectors: Tensor

    def energy(self, width: int) -> float:
        """The share of the variance that the first `width` eigenvectors hold."""
        total = float(self.values.sum())
        return float(self.values[:width].sum()) / total if total > 0 else 1.0

    def dropped(self, width: int) -> float:
        """The variance that they do not hold."""
        return float(self.values[width:].sum())

    def width(self, energy: float, most: int) -> int:
        """The fewest eigenvectors that hold a share of the variance, at least one and at most `most`."""
        enough = self.values.cumsum(0) >= energy * float(self.values.sum())
        return min(most, 1 + int((~enough).sum()))

"""What a basis captures of the slices it is used on: their energy, and how much of it is lost."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Captured:
    """Energies of some slices and a tail."""

    energy: float = 0.0
    lost: float = 0.0

    @classmethod
    def of(cls, rows: Tensor, mean: Tensor, coordinates: Tensor, tail: Tensor) -> Captured:
        """||g - U U^T (g - mu) - mu||^2 = ||g - mu||^2 - ||y||^2: U is orthonormal; the tail is exact."""
        return cls(_energy(rows) + _energy(tail), _energy(rows - mean) - _energy(coordinates))

    def plus(self, other: Captured) -> Captured:
        return Captured(self.energy + other.energy, self.lost + other.lost)

    @property
    def share(self) -> float:
        """The part of the energy that is not lost."""
        return min(1.0, 1 - self.lost / self.energy) if self.energy > 0 else 1.0


def _energy(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2

"""What explains the errors: how alike neighbours are, and how much energy a few numbers hold."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire_lab.study.snapshot import Snapshot

KEEP = 0.15  # the paper's: theta = 0.85
CHUNK = 4096
# White Gaussian noise, keep 15 %: what selecting captures of the energy in frequency and in place.
WHITE_IN_FREQUENCY, WHITE_IN_PLACE = 0.431, 0.559
BREAK_EVEN = 0.5  # lag-1 correlation of an AR(1) signal for which both capture the same


@dataclass(frozen=True)
class Correlation:
    """Of one tensor, or of all tensors of a snapshot weighted by their energy."""

    lag1: float  # sum x_i x_(i+1) / sum x_i^2, in the flattened order
    in_frequency: float  # share of the energy in the 15 % strongest bins
    in_chunks: float  # the same, of transforms of 4096 numbers
    in_place: float  # share of the energy in the 15 % largest elements


def lag1(x: Tensor) -> float:
    """How much an element says about the next one: about rho for an AR(1) signal, 0 for a white one."""
    x = x.double()
    energy = float(x.square().sum())
    return float((x[:-1] * x[1:]).sum()) / energy if energy > 0 else 0.0


def captured_in_place(x: Tensor, keep: float = KEEP) -> float:
    """The share of the energy that the largest elements hold."""
    return _captured(x.double().square(), keep)


def captured_in_frequency(x: Tensor, keep: float = KEEP, chunk: int | None = None) -> float:
    """The share of the energy that the strongest bins of the half spectrum hold.

    Bins other than DC and Nyquist stand for two; a last, shorter chunk is transformed at its own length.
    """
    chunks = [x] if chunk is None else torch.split(x, chunk)
    return _captured(torch.cat([bin_energies(piece.double()) for piece in chunks]), keep)


def bin_energies(x: Tensor) -> Tensor:
    """The energies of the half spectrum's bins; their sum is that of the elements."""
    energies: Tensor = torch.fft.rfft(x, norm="ortho").abs().square()
    energies[1 : (x.numel() + 1) // 2] *= 2
    return energies


def _captured(energies: Tensor, keep: float) -> float:
    total = float(energies.sum())
    count = max(1, round(keep * energies.numel()))
    return float(energies.topk(count).values.sum()) / total if total > 0 else 1.0


def correlation(x: Tensor) -> Correlation:
    """Of one tensor."""
    return Correlation(
        lag1(x), captured_in_frequency(x), captured_in_frequency(x, chunk=CHUNK), captured_in_place(x)
    )


def correlation_of(snapshot: Snapshot) -> Correlation:
    """Of all tensors: each counts as its energy does in the error over the whole model."""
    tensors = list(snapshot.tensors(snapshot.gradient).values())
    energies = [float(x.double().square().sum()) for x in tensors]
    total = sum(energies) or 1.0
    own = [correlation(x) for x in tensors]

    def mean(values: list[float]) -> float:
        return sum(e * value for e, value in zip(energies, values, strict=True)) / total

    return Correlation(
        mean([c.lag1 for c in own]),
        mean([c.in_frequency for c in own]),
        mean([c.in_chunks for c in own]),
        mean([c.in_place for c in own]),
    )

"""The dct stage: chunks of gradients as cosines (DCT-II, orthonormal)."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.stages.transform import ChunkedStage, Transform


class CosineTransform(Transform):
    """y_k = c_k sum_j x_j cos(pi k (2j + 1) / 2n), c_0 = sqrt(1/n), else sqrt(2/n), by one real FFT:

    1. v = x_0, x_2, x_4, ..., x_5, x_3, x_1
    2. w_k = exp(-i pi k / 2n) V_k with V = rfft(v), k = 0 ... n/2
    3. y_k = c_k Re w_k and y_(n-k) = -c_k Im w_k

    Makhoul, "A fast cosine transform in one and two dimensions", 1980.
    """

    @functools.cached_property
    def turns(self) -> Tensor:
        """c_k sqrt(n) exp(-i pi k / 2n)."""
        k = torch.arange(self.length // 2 + 1, dtype=torch.float64, device=self.device)
        lengths = torch.where(k == 0, 1.0, math.sqrt(2)).double()
        return torch.polar(lengths, k * (-math.pi / (2 * self.length))).to(torch.complex64)

    @functools.cached_property
    def turns_back(self) -> Tensor:
        """Their inverses: V_k is y_k - i y_(n-k), turned back."""
        return (1 / self.turns.to(torch.complex128)).to(torch.complex64)

    @functools.cached_property
    def order(self) -> Tensor:
        """Step 1: the places of x_0, x_2, x_4, ..., x_5, x_3, x_1."""
        places = torch.arange(self.length, device=self.device)
        return torch.cat([places[::2], places[1::2].flip(0)])

    @functools.cached_property
    def order_back(self) -> Tensor:
        return self.order.argsort()

    @functools.cached_property
    def halves(self) -> Tensor:
        """Where y_k and y_(n-k), which make w_k, lie in y, and for k = 0 only the former."""
        k = torch.arange(self.length // 2 + 1, device=self.device)
        return torch.stack([k, (self.length - k) % self.length], 1).flatten()

    @functools.cached_property
    def halves_back(self) -> Tensor:
        """Where y_0, y_1, ... lie among all Re w_k and Im w_k."""
        k = torch.arange(self.length, device=self.device)
        return torch.where(k <= self.length // 2, 2 * k, 2 * (self.length - k) + 1)

    def forward(self, x: Tensor, y: Tensor) -> None:
        rows = torch.index_select(x, 1, self.order, out=self.rows[: x.shape[0]])
        turned = torch.fft.rfft(rows, norm="ortho").mul_(self.turns)
        torch.index_select(torch.view_as_real(turned).flatten(1), 1, self.halves_back, out=y)
        y[:, self.length // 2 + 1 :].neg_()

    def inverse(self, y: Tensor, x: Tensor) -> None:
        spectra = self.spectra[: y.shape[0]]
        torch.index_select(y, 1, self.halves, out=spectra.flatten(1))
        spectra[:, 0, 1] = 0.0
        spectra[:, :, 1].neg_()
        turned = torch.view_as_complex(spectra) * self.turns_back
        rows = torch.fft.irfft(turned, n=self.length, norm="ortho")
        x.copy_(rows.index_select(1, self.order_back))


@dataclass(frozen=True)
class Dct(ChunkedStage):
    """The cosine transform of every chunk, orthonormal: n numbers to n numbers, ||y|| = ||x||.

    Chunks are those of `fourier`. Unlike Fourier's, its basis does not wrap around: a chunk whose ends differ
    needs fewer cosines. It drops nothing, and decoding is linear.
    """

    transform = CosineTransform

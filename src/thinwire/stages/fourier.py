"""The fourier stage: chunks of gradients as frequencies, in an orthonormal basis of real numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.stages.transform import ChunkedStage, Transform

_SQRT2 = math.sqrt(2)


class FourierTransform(Transform):
    """n numbers to ceil(n/2) pairs: (X_0, X_(n/2)), then sqrt(2) (Re X_k, Im X_k) for k = 1, 2, ...

    X = rfft(x) / sqrt(n). For odd n there is no X_(n/2), and 0 stands in its place.
    """

    def forward(self, x: Tensor, y: Tensor) -> None:
        rows = self.rows[: x.shape[0]].copy_(x)
        spectra = torch.view_as_real(torch.fft.rfft(rows, norm="ortho"))
        pairs = y.view(y.shape[0], -1, 2)
        torch.mul(spectra[:, : pairs.shape[1]], _SQRT2, out=pairs)
        pairs[:, 0, 0] = spectra[:, 0, 0]
        pairs[:, 0, 1] = spectra[:, -1, 0] if self.length % 2 == 0 else 0.0

    def inverse(self, y: Tensor, x: Tensor) -> None:
        pairs, spectra = y.view(y.shape[0], -1, 2), self.spectra[: y.shape[0]]
        torch.mul(pairs, 1 / _SQRT2, out=spectra[:, : pairs.shape[1]])
        spectra[:, 0, 1] = 0.0
        spectra[:, 0, 0] = pairs[:, 0, 0]
        if self.length % 2 == 0:
            spectra[:, -1, 0] = pairs[:, 0, 1]
        x.copy_(torch.fft.irfft(torch.view_as_complex(spectra), n=self.length, norm="ortho"))


@dataclass(frozen=True)
class Fourier(ChunkedStage):
    """The real Fourier transform of every chunk, orthonormal: what is dropped of y is lost of x, no more.

    1. a tensor is cut into chunks of `chunk` elements (an even number, or "tensor": one chunk, as in the
       paper); the last chunk, or a tensor shorter than a chunk, is transformed at its own length
    2. n numbers become ceil(n/2) pairs: a pair is a frequency, and its squares add up to its energy, with
       the weights 1, 2, ..., 2, (1) of a half spectrum built in; selecting stages keep or drop whole pairs

    It drops nothing. Decoding is linear: spectra of all ranks are added, and one inverse transform follows.
    Sums of a chunk must fit a float32: numbers above 1e34 may come out as infinite, on all ranks alike.
    """

    group = 2
    transform = FourierTransform

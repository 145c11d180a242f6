"""The fourier stage: chunks of gradients as frequencies, in an orthonormal basis of real numbers."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.codecs.stages.transform import ChunkedStage


@dataclass(frozen=True)
class Fourier(ChunkedStage):
    """The real Fourier transform of every chunk, orthonormal: what is dropped of y is lost of x, no more.

    1. a tensor is cut into chunks of `chunk` elements (an even number, or "tensor": one chunk, as in the
       paper); the last chunk, or a tensor shorter than a chunk, is transformed at its own length
    2. n numbers become ceil(n/2) pairs (X_0, X_(n/2)), then sqrt(2) (Re X_k, Im X_k) for k = 1, 2, ..., with
       X = rfft(x) / sqrt(n); for odd n there is no X_(n/2), and 0 stands in its place. A pair is a frequency,
       and its squares add up to its energy; selecting stages keep or drop whole pairs

    It drops nothing. Decoding is linear: spectra of all ranks are added, and one inverse transform follows.
    Sums of a chunk must fit a float32: numbers above 1e34 may come out as infinite, on all ranks alike.
    """

    group = 2

"""The dct stage: chunks of gradients as cosines (DCT-II, orthonormal)."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.codecs.stages.transform import ChunkedStage


@dataclass(frozen=True)
class DCT(ChunkedStage):
    """The cosine transform of every chunk, orthonormal: n numbers to n numbers, ||y|| = ||x||.

    y_k = c_k sum_j x_j cos(pi k (2j + 1) / 2n), c_0 = sqrt(1/n), else sqrt(2/n), by one Fourier transform.
    Chunks are those of `fourier`. Unlike Fourier's, its basis does not wrap around: a chunk whose ends differ
    needs fewer cosines. It drops nothing, and decoding is linear.

    Makhoul, "A fast cosine transform in one and two dimensions", 1980.
    """

    cosine = True

"""im2col: the windows of a batch of pictures as columns, so that a convolution is one matrix product."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def out_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """How many places a window has along an axis.

    >>> out_size(32, 3, 2, 1)
    16
    """
    return (size + 2 * padding - kernel) // stride + 1


def windows(x: NDArray[Any], kernel: int, stride: int, padding: int, fill: int = 0) -> NDArray[Any]:
    """A view of every window of x (N, C, H, W), shape (N, C, H', W', kernel, kernel); borders hold `fill`."""
    if padding:
        edge = (padding, padding)
        x = np.pad(x, ((0, 0), (0, 0), edge, edge), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def columns(x: NDArray[Any], kernel: int, stride: int, padding: int) -> NDArray[Any]:
    """x (N, C, H, W) as (N, C*kernel*kernel, H'*W'): row (c, i, j) is what kernel entry (c, i, j) meets.

    Any number type, also shares of a ring: W (K, C*k*k) @ columns(x) is the convolution.

    >>> columns(np.arange(9).reshape(1, 1, 3, 3), 2, 1, 0)[0].tolist()
    [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]
    """
    view = windows(x, kernel, stride, padding)
    batch, channels, height, width = view.shape[:4]
    flat = view.transpose(0, 1, 4, 5, 2, 3).reshape(batch, channels * kernel * kernel, height * width)
    return np.ascontiguousarray(flat)

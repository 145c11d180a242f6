"""Augmentation for small pictures: each is shifted by up to four pixels and mirrored half of the time."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

SHIFT = 4


def shift_and_flip(images: Tensor) -> Tensor:
    """Random crops of the zero-padded images, mirrored with probability 1/2; draws from torch's generator.

    The row (column) read for pixel y (x) of image b is y + dy[b] (x + dx[b], or its mirror image).
    """
    batch, _, height, width = images.shape
    padded = functional.pad(images, (SHIFT,) * 4)
    dy, dx = torch.randint(2 * SHIFT + 1, (2, batch, 1))
    rows = torch.arange(height) + dy
    columns = torch.arange(width) + dx
    columns = torch.where(torch.rand(batch, 1) < 0.5, columns, columns.flip(1))
    picked = padded.gather(2, rows[:, None, :, None].expand(-1, padded.shape[1], -1, padded.shape[3]))
    return picked.gather(3, columns[:, None, None, :].expand(-1, padded.shape[1], height, -1))

"""A bucket: a flat buffer of gradients."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.memories.base import is_finite
from thinwire.plans.lane import Lane
from thinwire.tensors.layout import Layout
from thinwire.tensors.scratch import Scratch


@dataclass(frozen=True)
class Bucket:
    """A flat buffer of gradients, the tensors in it, and the loss scale they carry."""

    buffer: Tensor
    layout: Layout
    loss_scale: float = 1.0

    def put(self, where: slice, mean: Tensor) -> None:
        """The mean of a tensor, in the bucket's dtype: a finite number beyond that becomes its largest.

        Codecs may round up: of gradients that fit the dtype the mean fits it too, what stands for it may not.
        """
        target = self.buffer[where].copy_(mean)
        if target.dtype.itemsize < mean.dtype.itemsize and not is_finite(target):
            largest = torch.finfo(target.dtype).max
            target.copy_(torch.where(mean.isfinite(), mean.clamp(-largest, largest), mean))

    def wide(self, lanes: Iterable[Lane], scratch: Scratch) -> Tensor:
        """The gradients as float32, for lanes that do not travel in their own dtype."""
        if self.buffer.dtype == torch.float32 or all(lane.codec.own_dtype for lane in lanes):
            return self.buffer
        values = scratch.take("values", 4 * self.buffer.numel()).view(torch.float32)
        return values.copy_(self.buffer)

"""The stage that passes tensors on as they are: for phases in which nothing is dropped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Context
from thinwire.codecs.stages.base import BoundStage, Learned, LinearStage, RangedStage
from thinwire.tensors.layout import Layout

_EVEN = 64  # elements: parts end on whole granules of every float format
_HALF = frozenset({torch.float16, torch.bfloat16})


@dataclass(frozen=True)
class Identity(LinearStage):
    """Nothing changes, for ever. No text names it: it stands where a chain has nothing else (codec.py)."""

    fixed = True

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundIdentity(layout)


class BoundIdentity(RangedStage):
    """The tensors end to end. Dense coders send 16-bit gradients as they are, others as float32."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.out = Layout.packed(
            spec if spec.dtype in _HALF else replace(spec, dtype=torch.float32) for spec in layout.specs
        )

    def cut_points(self) -> range:
        return range(0, self.out.numel, _EVEN)

    def prepare(self, agreed: Tensor) -> None:
        pass

    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        for there, here in self._pairs(first, last):
            y[here] = x[there]

    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        for there, here in self._pairs(first, last):
            x[there] = y[here]

    def _pairs(self, first: int, last: int) -> Iterator[tuple[slice, slice]]:
        """Where the numbers first..last lie in the lane and among themselves."""
        for there, here in zip(self.layout.slices, self.out.slices, strict=True):
            low, high = max(first, here.start), min(last, here.stop)
            if low < high:
                shift = there.start - here.start
                yield slice(low + shift, high + shift), slice(low - first, high - first)

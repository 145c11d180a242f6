"""The clip stage: values beyond c standard deviations are cut to that bound, tensor by tensor."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from thinwire.codecs.coder import Context
from thinwire.codecs.stage import BoundStage, Learned, LinearStage
from thinwire.devices import is_host
from thinwire.errors import CodecError
from thinwire.tensors import Layout
from thinwire.texts import option


@dataclass(frozen=True)
class Clip(LinearStage):
    """f(g) = clamp(g, -c*sigma, +c*sigma): sigma around the mean, cut around zero. Decodes as identity."""

    c: float = option(2.5, float, "a positive number of standard deviations", repr)

    def __post_init__(self) -> None:
        if not self.c > 0:
            raise CodecError(f"clip: c={self.c:g} must be positive; leave the stage out for no clipping")

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundClip(self, layout, context)


class BoundClip(BoundStage):
    def __init__(self, stage: Clip, layout: Layout, context: Context) -> None:
        self.stage, self.layout, self.context = stage, layout, context
        self.out = Layout.packed(layout.specs, layout.group)
        rows = [
            [offset, spec.numel, 0, index, 0, 0]
            for index, (spec, offset) in enumerate(zip(layout.specs, layout.offsets, strict=True))
        ]
        for before, row in pairwise(rows):
            row[2] = before[2] + -(-before[1] // 32)
        self.table = context.table(rows)

    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        count = len(self.layout.specs)
        bits = torch.empty(count, dtype=torch.int32, device=x.device)
        limits = torch.empty(count, dtype=torch.float32, device=x.device)
        self.context.kernels.ternary.scales(x, self.table, self.stage.c, False, bits, limits)
        bounds: Iterable[Any] = limits.tolist() if is_host(x.device) else limits
        pieces = [
            x[piece].clamp(-limit, limit) for piece, limit in zip(self.layout.slices, bounds, strict=True)
        ]
        return torch.cat(pieces) if pieces else x.new_empty(0)

    def inverse(self, y: Tensor, x: Tensor) -> None:
        for source, target in zip(self.out.slices, self.layout.slices, strict=True):
            x[target] = y[source]

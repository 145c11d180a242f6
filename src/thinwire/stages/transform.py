"""Orthonormal transforms in chunks: what fourier and dct share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from thinwire.coders.base import Place
from thinwire.errors import CodecError
from thinwire.kernels.roots import turning
from thinwire.options import option, read_chunk, show_chunk
from thinwire.spec import Layout, Spec
from thinwire.stages.base import BoundStage, LinearStage, Notes

CHUNK = 4096
CHUNK_RULE = '"tensor", or an even number of elements'
_BATCH_NUMEL = 1 << 18  # elements transformed at once: they stay in the cache
_BATCH_CHUNKS = 16  # but at least so many chunks: a call has a price of its own


@dataclass(frozen=True)
class Batch:
    """Chunks of one length that are transformed at once: where they begin in the lane and in the result."""

    length: int
    count: int
    source: int
    target: int


@dataclass(frozen=True)
class ChunkedStage(LinearStage):
    """A stage that transforms every tensor in chunks of `chunk` elements; the last one may be shorter.

    The transforms are thinwire's own (kernels/fourier): one order of operations, the same bits on all ranks.
    """

    fixed = True
    group: ClassVar[int] = 1  # coordinates that stand or fall together; a chunk is rounded up to whole groups
    cosine: ClassVar[bool] = False  # the cosine transform, or Fourier's

    chunk: int = option(CHUNK, read_chunk, CHUNK_RULE, show_chunk)

    def __post_init__(self) -> None:
        check_chunk(type(self).__name__.lower(), self.chunk)

    def width(self, length: int) -> int:
        """Coordinates of a chunk of so many elements."""
        return -(-length // self.group) * self.group

    def bind(self, layout: Layout, place: Place, phase: str, notes: Notes) -> BoundStage:
        return BoundTransform(self, layout, place)

    def batches(self, spec: Spec, source: int, target: int) -> Iterator[Batch]:
        """Whole chunks, then the rest; counted from the tensor's start, so that buckets change no bits."""
        chunk = min(self.chunk or spec.numel, spec.numel)
        most = max(_BATCH_NUMEL // chunk, _BATCH_CHUNKS) if chunk else 1
        left = spec.numel
        while left:
            length = min(chunk, left)
            count = min(left // length, most)
            yield Batch(length, count, source, target)
            left -= count * length
            source, target = source + count * length, target + count * self.width(length)


class BoundTransform(BoundStage):
    """Every batch through the transform of its length."""

    def __init__(self, stage: ChunkedStage, layout: Layout, place: Place) -> None:
        self.stage = stage
        specs = [Spec(spec.name, (stage.width(spec.numel),)) for spec in layout.specs]
        self.out = Layout.packed(specs, stage.group)
        self.batches = [
            batch
            for spec, source, target in zip(layout.specs, layout.offsets, self.out.offsets, strict=True)
            for batch in stage.batches(spec, source, target)
        ]
        self.kernels = place.kernels.fourier
        lengths = {batch.length for batch in self.batches}
        self.turnings = {length: turning(length, stage.cosine, place.device) for length in lengths}

    def forward(self, x: Tensor, agreed: Tensor) -> Tensor:
        y = x.new_empty(self.out.numel)
        for batch, numbers, coordinates in self._views(x, y):
            self.kernels.forward(numbers, *self.turnings[batch.length].tables, coordinates)
        return y

    def inverse(self, y: Tensor, x: Tensor) -> None:
        for batch, numbers, coordinates in self._views(x, y):
            self.kernels.inverse(coordinates, *self.turnings[batch.length].tables, numbers)

    def _views(self, x: Tensor, y: Tensor) -> Iterator[tuple[Batch, Tensor, Tensor]]:
        """Every batch with its rows of x and of y."""
        for batch in self.batches:
            width = self.stage.width(batch.length)
            numbers = x[batch.source : batch.source + batch.count * batch.length]
            coordinates = y[batch.target : batch.target + batch.count * width]
            yield batch, numbers.view(batch.count, batch.length), coordinates.view(batch.count, width)


def check_chunk(name: str, chunk: int) -> None:
    """Refuses odd chunks: they would not fill whole pairs."""
    if chunk < 0 or chunk % 2:
        raise CodecError(f"{name}: chunk={chunk} must be an even number of at least 2, or tensor")

"""Orthonormal transforms in chunks: what fourier and dct share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from thinwire.codecs.coders.base import Context
from thinwire.codecs.stages.base import BoundStage, Learned, LinearStage, RangedStage
from thinwire.errors import CodecError
from thinwire.kernels.roots import turning
from thinwire.tensors.layout import Layout
from thinwire.tensors.spec import Spec
from thinwire.texts.options import option, read_chunk, show_chunk

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

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundTransform(self, layout, context)

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


class BoundTransform(RangedStage):
    """Every batch through the transform of its length; parts are whole chunks."""

    def __init__(self, stage: ChunkedStage, layout: Layout, context: Context) -> None:
        self.stage = stage
        specs = [Spec(spec.name, (stage.width(spec.numel),)) for spec in layout.specs]
        self.out = Layout.packed(specs, stage.group)
        self.batches = [
            batch
            for spec, source, target in zip(layout.specs, layout.offsets, self.out.offsets, strict=True)
            for batch in stage.batches(spec, source, target)
        ]
        self.kernels = context.kernels.fourier
        lengths = {batch.length for batch in self.batches}
        self.turnings = {length: turning(length, stage.cosine, context.device) for length in lengths}

    def cut_points(self) -> list[int]:
        return [
            batch.target + index * self.stage.width(batch.length)
            for batch in self.batches
            for index in range(batch.count)
        ]

    def prepare(self, agreed: Tensor) -> None:
        pass

    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        for length, numbers, coordinates in self._views(x, y, first, last):
            self.kernels.forward(numbers, *self.turnings[length].tables, coordinates)

    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        for length, numbers, coordinates in self._views(x, y, first, last):
            self.kernels.inverse(coordinates, *self.turnings[length].tables, numbers)

    def _views(self, x: Tensor, y: Tensor, first: int, last: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Every batch, as far as it lies in the numbers first..last, with its rows of x and of y."""
        for batch in self.batches:
            length, width = batch.length, self.stage.width(batch.length)
            skipped = max(0, first - batch.target) // width
            count = min(batch.count, (last - batch.target) // width) - skipped
            if count > 0:
                source, target = batch.source + skipped * length, batch.target + skipped * width - first
                numbers, coordinates = x[source:], y[target:]
                yield (
                    length,
                    numbers[: count * length].view(count, length),
                    coordinates[: count * width].view(count, width),
                )


def check_chunk(name: str, chunk: int) -> None:
    """Refuses odd chunks: they would not fill whole pairs."""
    if chunk < 0 or chunk % 2:
        raise CodecError(f"{name}: chunk={chunk} must be an even number of at least 2, or tensor")

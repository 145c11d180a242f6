"""Rows: the tensors of a lane as rows of 32 elements, as coders of few bits lay them out in a payload."""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.sizes import ROW
from thinwire.tensors.key import Key
from thinwire.tensors.layout import Layout


@dataclass(frozen=True)
class Segment:
    """A tensor of the lane, or the run of its elements from `start` on; `row` is its first in the payload."""

    name: str
    offset: int
    numel: int
    row: int
    scale: int
    start: int = 0

    def rows(self, first: int, last: int) -> Segment:
        """The part of it in rows first..last of the payload, with rows counted from `first`."""
        skipped = max(0, first - self.row) * ROW
        stop = min(self.numel, (last - self.row) * ROW)
        row = max(first, self.row) - first
        return Segment(
            self.name, self.offset + skipped, stop - skipped, row, self.scale, self.start + skipped
        )


@dataclass(frozen=True)
class Rows:
    """Where each tensor lies: in the buffer, in the rows of the payload, and in the list of scales.

    Every tensor starts on a granule (`granule_rows` rows): what it becomes does not depend on its neighbours.
    `block` elements share a scale; 0 means a whole tensor.
    """

    segments: tuple[Segment, ...]
    num_rows: int
    num_scales: int
    granule_rows: int
    block: int

    @classmethod
    def of(cls, layout: Layout, granule_rows: int, block: int) -> Rows:
        """Empty tensors are left out: nothing to send, and no scale to agree on.

        >>> from thinwire.tensors.spec import Spec
        >>> rows = Rows.of(Layout.packed([Spec("a", (33,)), Spec("b", (2, 300))]), granule_rows=8, block=512)
        >>> rows.num_rows, rows.num_scales, [segment.row for segment in rows.segments]
        (32, 3, [0, 8])
        """
        segments, row, scale = [], 0, 0
        for spec, offset in zip(layout.specs, layout.offsets, strict=True):
            if spec.numel == 0:
                continue
            segments.append(Segment(spec.key, offset, spec.numel, row, scale))
            row += -(-spec.numel // (ROW * granule_rows)) * granule_rows
            scale += -(-spec.numel // block) if block else 1
        return cls(tuple(segments), row, scale, granule_rows, block)

    @property
    def num_granules(self) -> int:
        return self.num_rows // self.granule_rows

    def cut(self, first: int, last: int) -> Rows:
        """Rows first..last (multiples of `granule_rows`) under the same scales."""
        inside = [s for s in self.segments if s.row < last and s.row + -(-s.numel // ROW) > first]
        rows = tuple(segment.rows(first, last) for segment in inside)
        return Rows(rows, last - first, self.num_scales, self.granule_rows, self.block)

    def cuts(self, count: int) -> list[tuple[Rows, int, int]]:
        """About `count` cuts that together are all rows, with their elements first..last."""
        step = max(1, -(-self.num_granules // count)) * self.granule_rows
        ends = [*range(step, self.num_rows, step), self.num_rows] if self.num_rows else [0]
        firsts = [0, *ends[:-1]]
        return [
            (self.cut(first, last), self._elements_before(first), self._elements_before(last))
            for first, last in zip(firsts, ends, strict=True)
        ]

    def moved(self, base: int) -> Rows:
        """The same rows of a buffer that begins at element `base` of this one."""
        return dataclasses.replace(
            self, segments=tuple(dataclasses.replace(s, offset=s.offset - base) for s in self.segments)
        )

    def _elements_before(self, row: int) -> int:
        return sum(min(s.numel, max(0, row - s.row) * ROW) for s in self.segments)

    @functools.cached_property
    def table(self) -> Tensor:
        """The segments as kernels take them, six columns each (csrc/lane.h)."""
        columns = [[s.offset, s.numel, s.row, s.scale, self.block, s.start] for s in self.segments]
        return torch.tensor(columns, dtype=torch.int64).flatten()

    def key_words(self, key: Key) -> Tensor:
        """The two key words of every tensor, as int32."""
        words = [word for segment in self.segments for word in key.words(segment.name)]
        return torch.tensor(words, dtype=torch.int64).to(torch.int32)


def read_block(text: str) -> int:
    """Reads the option `block`: elements that share a scale."""
    return 0 if text == "layer" else int(text)


def show_block(block: int) -> str:
    return "layer" if block == 0 else str(block)


BLOCK_RULE = f'"layer", or a multiple of {ROW} elements'

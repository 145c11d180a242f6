"""Float coders: dense (the tensors' own dtype) and cast (fp16, bf16); their payloads add on the wire."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Coder, Context, Merge, Packer, Part
from thinwire.tensors.key import Key
from thinwire.tensors.layout import Layout
from thinwire.texts.options import one_of, option

_RUN = 1 << 16
GRANULE_BYTES = 8  # shards end on 8 bytes, so that every piece of a message is aligned


@dataclass(frozen=True)
class Dense(Coder):
    """The gradient as it is, divided by the number of workers before it is added, as DDP does."""

    merge = Merge.SUM
    own_dtype = True
    gentle = True

    def bind(self, layout: Layout, context: Context) -> Packer:
        dtype = layout.specs[0].dtype if layout.specs else torch.float32
        return FloatPacker(dtype, list(layout.slices), context)


@dataclass(frozen=True)
class Cast(Coder):
    """The gradient in 16 bits: divided by the number of workers, rounded, and added in 16 bits."""

    merge = Merge.SUM
    gentle = True

    to: str = option("fp16", one_of("fp16", "bf16"), '"fp16" or "bf16"')

    def bind(self, layout: Layout, context: Context) -> Packer:
        dtype = torch.float16 if self.to == "fp16" else torch.bfloat16
        return FloatPacker(dtype, list(layout.slices), context)


class FloatPacker(Packer):
    """g/N in a float format. Owners add in rank order in at least float32 and round once."""

    granule_bytes = GRANULE_BYTES

    def __init__(self, dtype: torch.dtype, pieces: list[slice], context: Context) -> None:
        self.wire_dtype, self.pieces, self.context = dtype, pieces, context
        self.numel = sum(piece.stop - piece.start for piece in pieces)
        self.num_granules = -(-self.numel * dtype.itemsize // GRANULE_BYTES)

    def parts(self, count: int) -> list[Part]:
        per_granule = GRANULE_BYTES // self.wire_dtype.itemsize
        step = max(1, -(-self.num_granules // count)) * per_granule
        lasts = [*range(step, self.numel, step), self.numel]
        return [
            Part(self._with(_cut(self.pieces, first, last)), first, last)
            for first, last in zip([0, *lasts[:-1]], lasts, strict=True)
        ]

    def cut_points(self) -> None:
        return None

    def span(self, first: int, last: int) -> Packer:
        return self._with([slice(0, last - first)] if last > first else [])

    def moved(self, base: int) -> Packer:
        return self._with([slice(piece.start - base, piece.stop - base) for piece in self.pieces])

    def _with(self, pieces: list[slice]) -> FloatPacker:
        return FloatPacker(self.wire_dtype, pieces, self.context)

    def in_place(self, x: Tensor) -> Tensor | None:
        gapless = all(a.stop == b.start for a, b in pairwise(self.pieces))
        whole_granules = self.numel * self.wire_dtype.itemsize % GRANULE_BYTES == 0
        if not self.pieces or x.dtype != self.wire_dtype or not gapless or not whole_granules:
            return None
        return x[self.pieces[0].start : self.pieces[-1].stop].view(torch.uint8)

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        wire = payload.view(self.wire_dtype)
        for piece, target in self._pairs(wire):
            _divide(x[piece], self.context.world, target)
        wire[self.numel :] = 0

    def merged_bytes(self, num_granules: int) -> int:
        return num_granules * GRANULE_BYTES

    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        if not payloads.numel():
            return  # only empty tensors
        wide = torch.promote_types(self.wire_dtype, torch.float32)
        total = payloads[0].view(self.wire_dtype).to(wide, copy=True)
        for payload in payloads[1:]:
            total += payload.view(self.wire_dtype)
        sums.view(self.wire_dtype).copy_(total)

    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        for piece, source in self._pairs(sums.reshape(-1).view(self.wire_dtype)):
            if x[piece].data_ptr() != source.data_ptr():
                x[piece] = source

    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        self.decode(payload, agreed, x)
        for piece in self.pieces:
            x[piece] *= self.context.world

    def _pairs(self, wire: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Each tensor's place in the bucket and on the wire."""
        end = 0
        for piece in self.pieces:
            start, end = end, end + piece.stop - piece.start
            yield piece, wire[start:end]


def _divide(x: Tensor, by: int, out: Tensor) -> None:
    """out = x / by, rounded to out's dtype; in runs that fit a cache, so that no large temporary is made."""
    if x.dtype == out.dtype:
        torch.mul(x, 1 / by, out=out)  # as DDP does it: a division differs in the last bit
        return
    for first in range(0, x.numel(), _RUN):
        run = slice(first, first + _RUN)
        out[run] = x[run] / by


def _cut(pieces: list[slice], first: int, last: int) -> list[slice]:
    """The pieces' elements first..last, counted over all pieces end to end."""
    cut, end = [], 0
    for piece in pieces:
        start, end = end, end + piece.stop - piece.start
        low, high = max(first, start), min(last, end)
        if low < high:
            cut.append(slice(piece.start + low - start, piece.start + high - start))
    return cut

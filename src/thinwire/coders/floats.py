"""Float coders: dense (the tensors' own dtype) and cast (fp16, bf16); their payloads add on the wire."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.coders.base import Coder, Merge, Packer, Place
from thinwire.key import Key
from thinwire.options import one_of, option
from thinwire.spec import Layout

GRANULE_BYTES = 8  # shards end on 8 bytes, so that every piece of a message is aligned


@dataclass(frozen=True)
class Dense(Coder):
    """The gradient as it is, divided by the number of workers before it is added, as DDP does."""

    own_dtype = True
    gentle = True

    @property
    def merge(self) -> Merge:
        return Merge.SUM

    @property
    def shardable(self) -> bool:
        return True

    def bind(self, layout: Layout, place: Place) -> Packer:
        dtype = layout.specs[0].dtype if layout.specs else torch.float32
        return FloatPacker(dtype, layout, place)


@dataclass(frozen=True)
class Cast(Coder):
    """The gradient in 16 bits: divided by the number of workers, rounded, and added in 16 bits."""

    gentle = True

    to: str = option("fp16", one_of("fp16", "bf16"), '"fp16" or "bf16"')

    @property
    def merge(self) -> Merge:
        return Merge.SUM

    @property
    def shardable(self) -> bool:
        return True

    def bind(self, layout: Layout, place: Place) -> Packer:
        return FloatPacker(torch.float16 if self.to == "fp16" else torch.bfloat16, layout, place)


class FloatPacker(Packer):
    """g/N in a float format. Owners add in rank order in at least float32 and round once."""

    granule_bytes = GRANULE_BYTES

    def __init__(self, dtype: torch.dtype, layout: Layout, place: Place) -> None:
        self.wire_dtype, self.layout, self.place = dtype, layout, place
        self.num_granules = -(-layout.numel * dtype.itemsize // GRANULE_BYTES)

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        wire = payload.view(self.wire_dtype)
        end = 0
        for piece in self.layout.slices:
            start, end = end, end + piece.stop - piece.start
            if x.dtype == self.wire_dtype:
                torch.div(x[piece], self.place.world, out=wire[start:end])
            else:
                wire[start:end] = x[piece] / self.place.world
        wire[end:] = 0

    def sum_bytes(self, num_granules: int) -> int:
        return num_granules * GRANULE_BYTES

    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        wide = torch.promote_types(self.wire_dtype, torch.float32)
        total = payloads[0].view(self.wire_dtype).to(wide, copy=True)
        for payload in payloads[1:]:
            total += payload.view(self.wire_dtype)
        sums.view(self.wire_dtype).copy_(total)

    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        wire = sums.reshape(-1).view(self.wire_dtype)
        end = 0
        for piece in self.layout.slices:
            start, end = end, end + piece.stop - piece.start
            x[piece] = wire[start:end]

    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        self.decode(payload, agreed, x)
        for piece in self.layout.slices:
            x[piece] *= self.place.world

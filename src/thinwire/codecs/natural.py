"""The natural coder: every number as its sign and a power of two, 9 bits per element."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import Coder, Context, GatherPacker, Merge, Packer, unit_size
from thinwire.devices import sent
from thinwire.kernels.reference.hashing import counters, random24
from thinwire.tensors import Key, Layout

MANTISSA, INFINITE = (1 << 23) - 1, 255
BIT = torch.tensor([1, 2, 4, 8, 16, 32, 64, 128], dtype=torch.uint8)


@dataclass(frozen=True)
class Natural(Coder):
    """Natural compression: x = s 2^e (1 + m), 0 <= m < 1, becomes s 2^(e+1) with probability m, else s 2^e.

    The mantissa is dropped and the float's exponent rounded at random: no scale, no block, no division.
    Unbiased, so no error feedback; E|Q(x) - x|^2 <= x^2 / 8. A number beyond all powers of two stays at the
    largest; what is not finite becomes NaN.
    Horvath et al., "Natural Compression for Distributed Deep Learning", MSML 2022.
    """

    merge = Merge.GATHER

    def bind(self, layout: Layout, context: Context) -> Packer:
        return NaturalPacker(layout.units(unit_size(1)), context)


class NaturalPacker(GatherPacker):
    """The exponents of all elements, a byte each, then their signs, a bit each."""

    def __init__(self, layout: Layout, context: Context) -> None:
        super().__init__(layout, context, layout.numel + -(-layout.numel // 8))
        self.bit = sent(BIT, context.device)

    def rebind(self, layout: Layout) -> NaturalPacker:
        return NaturalPacker(layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        end, signs = 0, torch.zeros(-(-self.layout.numel // 8) * 8, dtype=torch.uint8, device=x.device)
        for spec, piece in zip(self.layout.specs, self.layout.slices, strict=True):
            pattern = x[piece].contiguous().view(torch.int32)
            exponent, mantissa = (pattern >> 23) & INFINITE, pattern & MANTISSA
            up = random24(counters(0, spec.numel, x.device), *key.words(spec.key)) >> 1 < mantissa
            rounded = torch.where(exponent < INFINITE, (exponent + up).clamp(max=INFINITE - 1), INFINITE)
            payload[end : end + spec.numel] = rounded.to(torch.uint8)
            signs[end : end + spec.numel] = pattern < 0
            end += spec.numel
        payload[end : end + signs.numel() // 8] = (signs.view(-1, 8) * self.bit).sum(1, dtype=torch.uint8)
        payload[end + signs.numel() // 8 : self.granule_bytes] = 0

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count, numel = payloads.shape[0], self.layout.numel
        exponents = payloads[:, :numel].to(torch.int32)
        signs = (payloads[:, numel : numel + -(-numel // 8), None] & self.bit > 0).flatten(1)[:, :numel]
        powers = (exponents << 23).view(torch.float32)
        values = torch.where(exponents < INFINITE, torch.where(signs, -powers, powers), math.nan)
        total = values[0]
        for own in values[1:]:
            total = total + own
        for piece in self.layout.pieces():
            x[piece.where] = total[: piece.count] / count
            total = total[piece.count :]

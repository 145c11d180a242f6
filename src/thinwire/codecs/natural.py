"""The natural coder: every number as its sign and a power of two, 9 bits per element."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from torch import Tensor

from thinwire.codecs.coder import Coder, Context, GatherPacker, Merge, Packer, unit_size
from thinwire.devices import int_words
from thinwire.tensors import Key, Layout


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
        self.used_bytes = layout.numel + -(-layout.numel // 8)
        starts = accumulate((spec.numel for spec in layout.specs), initial=0)
        rows = zip(layout.offsets, (spec.numel for spec in layout.specs), starts, strict=False)
        self.table = context.table(list(rows))
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> NaturalPacker:
        return NaturalPacker(layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        words = [word for spec in self.layout.specs for word in key.words(spec.key)]
        keys = int_words(words, self.context.tables)
        self.context.kernels.natural.encode(x, self.table, keys, payload[: self.used_bytes])
        payload[self.used_bytes : self.granule_bytes].zero_()

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        self.context.kernels.natural.decode(payloads.reshape(-1), payloads.shape[0], self.table, x)

"""SparseLoCo's codec: the largest of every 4,096 elements, with values of two bits; for local steps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from thinwire.codecs.coder import Coder, Context, GatherPacker, Merge, Packer
from thinwire.codecs.stage import SelectingStage
from thinwire.codecs.topk import TopK
from thinwire.devices import quotient
from thinwire.errors import CodecError
from thinwire.kernels.reference.bits import ordered_sum
from thinwire.tensors import Key, Layout
from thinwire.texts import option

_PER_BYTE = 4  # codes of two bits
_SHIFTS = (0, 2, 4, 6)
_BINS = 4
_WIDTH = 6.0 / _BINS  # of a bin, in standard deviations


@dataclass(frozen=True)
class Bins(Coder):
    """Two bits an element, for every tensor (or unit of about a million elements):

    1. mu, sigma of the values; a bin is s = 6 sigma / 4 wide
    2. code = clamp(round((v - mu) / s + 2), 0, 3)
    3. a code stands for the mean of the values in its bin, which travels with the codes

    Made for what `sparseloco` selects: values far from zero on both sides. Biased.
    """

    merge = Merge.GATHER
    feedback = "residual"

    @property
    def cuts_anywhere(self) -> bool:
        """A mean over owners would be rounded to four values once more: payloads are gathered."""
        return False

    def bind(self, layout: Layout, context: Context) -> Packer:
        return BinsPacker(layout, context)


class BinsPacker(GatherPacker):
    """The codes of each tensor, four in a byte, then four float32 a tensor: what its codes stand for."""

    def __init__(self, layout: Layout, context: Context) -> None:
        self.places = [where for where in layout.slices if where.stop > where.start]
        sizes = [-(-(where.stop - where.start) // _PER_BYTE) for where in self.places]
        ends = list(accumulate(sizes, initial=0))
        self.codes = [slice(first, last) for first, last in pairwise(ends)]
        self.code_bytes = -(-ends[-1] // 4) * 4
        self.used_bytes = self.code_bytes + 4 * _BINS * len(sizes)
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> BinsPacker:
        return BinsPacker(layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        payload[: self.granule_bytes].zero_()
        tables = payload[self.code_bytes : self.used_bytes].view(torch.float32).view(-1, _BINS)
        for where, codes, table in zip(self.places, self.codes, tables, strict=True):
            drawn, means = _binned(x[where])
            table.copy_(means)
            _pack(drawn, payload[codes])

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count = payloads.shape[0]
        tables = payloads[:, self.code_bytes : self.used_bytes].contiguous().view(torch.float32)
        tables = quotient(tables, count)
        for number, (where, codes) in enumerate(zip(self.places, self.codes, strict=True)):
            target = x[where]
            for rank, payload in enumerate(payloads):
                table = tables[rank, _BINS * number : _BINS * (number + 1)]
                values = table[_unpack(payload[codes], target.numel())]
                target.copy_(values) if rank == 0 else target.add_(values)


def _binned(values: Tensor) -> tuple[Tensor, Tensor]:
    """The bin of every value, and the mean of each bin; one NaN for all if a value is not finite."""
    wide, numel = values.double(), values.numel()
    mean = ordered_sum(wide) / numel
    if not math.isfinite(mean):
        return torch.zeros(numel, dtype=torch.uint8), torch.full((_BINS,), math.nan)
    deviation = math.sqrt(ordered_sum((wide - mean).square()) / numel)
    scale = _WIDTH * deviation or 1.0
    codes = ((wide - mean) / scale + _BINS // 2).round().clamp(0, _BINS - 1).to(torch.uint8)
    means = []
    for code in range(_BINS):
        inside = wide[codes == code]
        means.append(ordered_sum(inside) / inside.numel() if inside.numel() else 0.0)
    return codes, torch.tensor(means, dtype=torch.float32)


def _pack(codes: Tensor, target: Tensor) -> None:
    padded = torch.nn.functional.pad(codes, (0, -codes.numel() % _PER_BYTE)).view(-1, _PER_BYTE)
    target.zero_()
    for place, shift in enumerate(_SHIFTS):
        target |= padded[:, place] << shift


def _unpack(packed: Tensor, numel: int) -> Tensor:
    """The codes, as indices; whatever the bytes are, they are below 4."""
    codes = torch.stack([(packed >> shift) & 3 for shift in _SHIFTS], dim=1)
    return codes.flatten()[:numel].long()


@dataclass(frozen=True)
class SparseLoCo(SelectingStage):
    """Of every chunk of 4,096 elements the 64 largest, as two bits each, for pseudo-gradients of local steps:

    1. e = 0.95 e + D                      feedback "residual:decay=0.95"
    2. the k largest |e| of every chunk    64 of 4,096: 1.56 %
    3. their values in four bins (`Bins`), their places as sorted indices (at most 12 bits each)
    4. e = e - what that stands for

    0.16 bits an element and rank: indices are written by Elias and Fano's code. The outer step of SparseLoCo
    is plain: `DiLoCo(..., outer_lr=1, outer_momentum=0)`. Sarfi et al., "Communication Efficient LLM
    Pre-training with SparseLoCo", 2025.
    """

    feedback = "residual:decay=0.95"
    default_coder = Bins()

    k: int = option(64, int, "a whole number of elements")
    chunk: int = option(4096, int, "a number of elements")

    def __post_init__(self) -> None:
        if not 1 <= self.k <= self.chunk:
            raise CodecError(
                f"sparseloco: k={self.k} of chunk={self.chunk} elements must be at least 1 and at most all"
            )

    def check(self, coder: Coder) -> None:
        self._topk.check(coder)

    def bind(self, coder: Coder, layout: Layout, context: Context, phase: str) -> Packer:
        return self._topk.bind(coder, layout, context, phase)

    @property
    def _topk(self) -> TopK:
        return TopK(k=self.k, chunk=self.chunk)

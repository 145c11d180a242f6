"""The ternary coder: gradients as {-1, 0, +1} times a scale (TernGrad)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.coders.base import Coder, Merge, Packer, Place
from thinwire.errors import CodecError, PlanError
from thinwire.key import Key
from thinwire.options import number_or_off, one_of, option, show_number_or_off
from thinwire.spec import Layout

ROW = 32
MAX_WORLD = 32767


def _read_block(text: str) -> int:
    return 0 if text == "layer" else int(text)


@dataclass(frozen=True)
class Ternary(Coder):
    """Stochastic ternarizing, for each layer (or block) of worker i:

    1. sigma = sqrt(mean((g - mean(g))^2)); f(g) = clamp(g, -c*sigma, +c*sigma)
    2. s_i = max|f(g)| (scaler="max", the paper) or c*sigma (scaler="sigma", the authors' code)
    3. s = max_i s_i (scales="shared") or s = s_i (scales="own")
    4. t_k = sign(g_k) * b_k with b_k ~ Bernoulli(|f(g_k)| / s)
    5. the mean is s/N * sum_i t_i, at most 2N + 1 levels (shared), else the mean of s_i * t_i

    A layer with sigma = 0 is not clipped. Wen et al., "TernGrad", NeurIPS 2017.
    """

    clip: float = option(2.5, number_or_off, 'a positive number, or "off"', show_number_or_off)
    scaler: str = option("max", one_of("max", "sigma"), '"max" or "sigma"')
    scales: str = option("shared", one_of("shared", "own"), '"shared" or "own"')
    block: int = option(
        0, _read_block, '"layer", or a multiple of 32 elements', lambda b: "layer" if b == 0 else str(b)
    )
    wire: str = option("base3", one_of("base3", "2bit"), '"base3" or "2bit"')

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise CodecError(f'terngrad: clip={self.clip:g} must be positive; use clip=off for no clipping')
        if self.block < 0 or self.block % ROW:
            raise CodecError(f"terngrad: block={self.block} must be a multiple of {ROW}, or layer")
        if self.scaler == "sigma" and math.isinf(self.clip):
            raise CodecError("terngrad: scaler=sigma is c*sigma, so it needs clip; use scaler=max with clip=off")

    @property
    def merge(self) -> Merge:
        return Merge.INT if self.scales == "shared" else Merge.GATHER

    @property
    def shardable(self) -> bool:
        return self.scales == "shared"

    @property
    def digits(self) -> int:
        """Trits in a byte."""
        return 5 if self.wire == "base3" else 4

    def bind(self, layout: Layout, place: Place) -> Packer:
        if place.world > MAX_WORLD:
            raise PlanError(f"terngrad adds up at most {MAX_WORLD} workers, not {place.world}")
        segments, row, scale = [], 0, 0
        for spec, offset in zip(layout.specs, layout.offsets, strict=True):
            if spec.numel == 0:
                continue  # nothing to send, and no scale to agree on
            segments.append(Segment(spec.name, offset, spec.numel, row, scale))
            row += -(-spec.numel // (ROW * self.digits)) * self.digits
            scale += -(-spec.numel // self.block) if self.block else 1
        bounds = torch.empty(scale, dtype=torch.float32, device=place.device)
        packer = SharedTernaryPacker if self.scales == "shared" else OwnTernaryPacker
        return packer(self, segments, row, bounds, place)


@dataclass(frozen=True)
class Segment:
    """A tensor of the lane, or the run of its elements from `start` on; `row` is its first row in the payload."""

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


class _TernaryPacker(Packer):
    """What both forms share: the table of tensors, the statistics, and drawing the trits."""

    def __init__(
        self, coder: Ternary, segments: list[Segment], num_rows: int, bounds: Tensor, place: Place
    ) -> None:
        self.coder, self.segments, self.place = coder, segments, place
        self.digits = coder.digits
        self.num_rows, self.bounds, self.num_scales = num_rows, bounds, bounds.numel()
        columns = [[s.offset, s.numel, s.row, s.scale, coder.block, s.start] for s in segments]
        self.table = torch.tensor(columns, dtype=torch.int64).flatten()

    def _measure(self, x: Tensor, words: Tensor) -> None:
        self.place.kernels.ternary.scales(
            x, self.table, self.coder.clip, self.coder.scaler == "sigma", words, self.bounds
        )

    def _draw(self, x: Tensor, scale: Tensor, key: Key, trits: Tensor) -> None:
        words = [word for segment in self.segments for word in key.words(segment.name)]
        signed = torch.tensor(words, dtype=torch.int64).to(torch.int32)
        self.place.kernels.ternary.encode(
            x, self.table, signed, scale, self.bounds, self.digits, trits
        )

    def _decode_trits(self, trits: Tensor, scale: Tensor, x: Tensor) -> None:
        self.place.kernels.ternary.decode_own(trits, self.digits, self.table, scale, x)


class SharedTernaryPacker(_TernaryPacker):
    """One scale for all ranks: trits add up exactly, in words of base 2N + 1."""

    granule_bytes = ROW

    def __init__(
        self, coder: Ternary, segments: list[Segment], num_rows: int, bounds: Tensor, place: Place
    ) -> None:
        super().__init__(coder, segments, num_rows, bounds, place)
        self.num_granules = num_rows // self.digits
        self.agree_words = self.num_scales
        self.sum_digits = digits_per_word(2 * place.world + 1)

    def parts(self, count: int) -> list[Packer]:
        step = max(1, -(-self.num_granules // count)) * self.digits
        return [self._part(first, min(first + step, self.num_rows)) for first in range(0, self.num_rows, step)]

    def _part(self, first: int, last: int) -> SharedTernaryPacker:
        inside = [s for s in self.segments if s.row < last and s.row + -(-s.numel // ROW) > first]
        rows = [s.rows(first, last) for s in inside]
        return SharedTernaryPacker(self.coder, rows, last - first, self.bounds, self.place)

    def offer(self, x: Tensor, words: Tensor) -> None:
        self._measure(x, words)

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        self._draw(x, agreed.view(torch.float32), key, payload)

    def sum_bytes(self, num_granules: int) -> int:
        return -(-num_granules * self.digits // self.sum_digits) * ROW * 4

    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        self.place.kernels.ternary.add(
            payloads.reshape(-1), payloads.shape[0], self.digits, self.sum_digits, sums.view(torch.int32)
        )

    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        shards = sums.shape[0]
        rows_per_shard = -(-self.num_granules // shards) * self.digits
        self.place.kernels.ternary.decode_sum(
            sums.reshape(-1).view(torch.int32),
            shards,
            rows_per_shard,
            self.place.world,
            self.sum_digits,
            self.table,
            agreed.view(torch.float32) / self.place.world,
            x,
        )

    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        self._decode_trits(payload, agreed.view(torch.float32), x)


class OwnTernaryPacker(_TernaryPacker):
    """Every rank its own scales, sent behind its trits: payloads are decoded one by one."""

    num_granules = 1

    def __init__(
        self, coder: Ternary, segments: list[Segment], num_rows: int, bounds: Tensor, place: Place
    ) -> None:
        super().__init__(coder, segments, num_rows, bounds, place)
        self.trit_bytes = num_rows // self.digits * ROW
        self.granule_bytes = self.trit_bytes + 4 * self.num_scales
        self.pieces = [slice(s.offset, s.offset + s.numel) for s in segments]

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        words = self._scales_in(payload).view(torch.int32)
        self._measure(x, words)
        self._draw(x, words.view(torch.float32), key, payload[: self.trit_bytes])

    def sum_bytes(self, num_granules: int) -> int:
        return num_granules * self.granule_bytes * self.place.world

    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        sums.copy_(payloads.reshape(-1))

    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        if self.granule_bytes == 0:
            return  # only empty tensors
        payloads = sums.reshape(self.place.world, -1)
        self.decode_own(payloads[0], agreed, x)
        one = torch.empty_like(x)
        for payload in payloads[1:]:
            self.decode_own(payload, agreed, one)
            for piece in self.pieces:
                x[piece] += one[piece]
        for piece in self.pieces:
            x[piece] /= self.place.world

    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        self._decode_trits(payload[: self.trit_bytes], self._scales_in(payload).view(torch.float32), x)

    def _scales_in(self, payload: Tensor) -> Tensor:
        return payload[self.trit_bytes : self.granule_bytes]


def digits_per_word(base: int) -> int:
    """How many digits of a base fit in a 32-bit word.

    >>> [digits_per_word(2 * n + 1) for n in (1, 2, 4, 8)]
    [20, 13, 10, 7]
    """
    digits, product = 0, base
    while product <= 1 << 32:
        digits, product = digits + 1, product * base
    return digits

"""Float coders: dense (the tensors' own dtype) and cast (fp16, bf16); their payloads add on the wire."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from thinwire.codecs.coder import Coder, Context, Merge, Packer, Part
from thinwire.devices import is_host, quotient
from thinwire.kernels.sizes import ROW
from thinwire.tensors import Key, Layout
from thinwire.texts import one_of, option

_RUN = 1 << 16
GRANULE_BYTES = 8  # shards end on 8 bytes, so that every piece of a message is aligned
MANTISSA_BITS, LARGEST_EXPONENT = 23, 254  # of a float32
LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Dense(Coder):
    """The gradient as it is, divided by the number of workers before it is added, as DDP does."""

    merge = Merge.SUM
    own_dtype = True
    near_lossless = True

    def bind(self, layout: Layout, context: Context) -> Packer:
        dtype = layout.specs[0].dtype if layout.specs else torch.float32
        return FloatPacker(dtype, runs_of(layout), context)


@dataclass(frozen=True)
class Cast(Coder):
    """The gradient in 16 bits: divided by the number of workers, rounded, and added in 16 bits.

    bf16 has the range of float32. fp16 has not: every tensor is multiplied by a power of two that all ranks
    agree on, so that its largest number, added over all ranks, is just below 2^15 (`ScaledPacker`).
    """

    merge = Merge.SUM
    near_lossless = True

    to: str = option("fp16", one_of("fp16", "bf16"), '"fp16" or "bf16"')

    def bind(self, layout: Layout, context: Context) -> Packer:
        if self.to == "fp16":
            return ScaledPacker(torch.float16, runs_of(layout), context)
        return FloatPacker(torch.bfloat16, runs_of(layout), context)


@dataclass(frozen=True)
class Run:
    """Elements of a tensor, one behind the other: where they lie, and which of the lane's tensors it is."""

    start: int
    stop: int
    tensor: int

    @property
    def where(self) -> slice:
        return slice(self.start, self.stop)

    @property
    def numel(self) -> int:
        return self.stop - self.start


def runs_of(layout: Layout) -> list[Run]:
    """The tensors of a lane that are not empty."""
    where = [piece for piece in layout.slices if piece.stop > piece.start]
    return [Run(piece.start, piece.stop, tensor) for tensor, piece in enumerate(where)]


class FloatPacker(Packer):
    """g/N in a float format. Owners add in rank order in at least float32 and round once."""

    granule_bytes = GRANULE_BYTES

    def __init__(self, dtype: torch.dtype, runs: Sequence[Run], context: Context) -> None:
        self.wire_dtype, self.runs, self.context = dtype, runs, context
        self.numel = sum(run.numel for run in runs)
        self.num_granules = -(-self.numel * dtype.itemsize // GRANULE_BYTES)

    def parts(self, count: int) -> list[Part]:
        per_granule = GRANULE_BYTES // self.wire_dtype.itemsize
        step = max(1, -(-self.num_granules // count)) * per_granule
        lasts = [*range(step, self.numel, step), self.numel]
        return [
            Part(self._with(_cut(self.runs, first, last)), first, last)
            for first, last in zip([0, *lasts[:-1]], lasts, strict=True)
        ]

    def cut_points(self) -> Sequence[int] | None:
        return None

    def span(self, first: int, last: int) -> Packer:
        return self._with([Run(0, last - first, 0)] if last > first else [])

    def shards(self, count: int) -> list[Packer]:
        size = len(self.runs) // count
        return [self._with(self.runs[size * shard : size * (shard + 1)]) for shard in range(count)]

    def moved(self, base: int) -> Packer:
        return self._with([Run(run.start - base, run.stop - base, run.tensor) for run in self.runs])

    def _with(self, runs: Sequence[Run]) -> FloatPacker:
        return type(self)(self.wire_dtype, runs, self.context)

    def in_place(self, x: Tensor) -> Tensor | None:
        gapless = all(a.stop == b.start for a, b in pairwise(self.runs))
        whole_granules = self.numel * self.wire_dtype.itemsize % GRANULE_BYTES == 0
        if not self.runs or x.dtype != self.wire_dtype or not gapless or not whole_granules:
            return None
        return x[self.runs[0].start : self.runs[-1].stop].view(torch.uint8)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        wire = payload.view(self.wire_dtype)
        for run, target in self._pairs(wire):
            _divide(x[run.where], self.context.world, target)
        wire[self.numel :].zero_()

    def merged_bytes(self, num_granules: int) -> int:
        return num_granules * GRANULE_BYTES

    def merge(self, payloads: Tensor, shared: Tensor, sums: Tensor) -> None:
        if not payloads.numel():
            return  # only empty tensors
        wide = torch.promote_types(self.wire_dtype, torch.float32)
        total = payloads[0].view(self.wire_dtype).to(wide, copy=True)
        for payload in payloads[1:]:
            total += payload.view(self.wire_dtype)
        sums.view(self.wire_dtype).copy_(total)

    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        for run, source in self._pairs(sums.reshape(-1).view(self.wire_dtype)):
            target = x[run.where]
            if target.data_ptr() != source.data_ptr():
                target.copy_(source)

    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        self.decode(payload, shared, x)
        for run in self.runs:
            x[run.where] *= self.context.world

    def _pairs(self, wire: Tensor) -> Iterator[tuple[Run, Tensor]]:
        """Each tensor's place in the bucket and on the wire."""
        end = 0
        for run in self.runs:
            start, end = end, end + run.numel
            yield run, wire[start:end]


class ScaledPacker(FloatPacker):
    """g 2^k / N in 16 bits, 2^k agreed on tensor by tensor: exact, and no sum over the ranks overflows.

    1. m = max|g| of the tensor over all ranks, as the bit pattern of a float32
    2. k = 15 - e with m < 2^e, the smallest such e; at most 126
    3. a rank sends g 2^k / N: however many of them are added, the sum stays below 2^15 (1 + 2^-11)^N
    4. the mean is the sum times 2^-k

    What is not finite on some rank is not finite in the mean: no power of two changes Inf or NaN.
    """

    def __init__(self, dtype: torch.dtype, runs: Sequence[Run], context: Context) -> None:
        super().__init__(dtype, runs, context)
        self.max_words = len(runs)

    def cut_points(self) -> Sequence[int]:
        return ()  # the largest number must be known before the first is sent

    def in_place(self, x: Tensor) -> None:
        return None

    def maxima(self, x: Tensor, words: Tensor) -> None:
        if not self.runs:
            return
        self.context.kernels.qsgd.scales(x, self._table, False, words)

    @cached_property
    def _table(self) -> Tensor:
        rows, row = [], 0
        for run in self.runs:
            rows.append([run.start, run.numel, row, run.tensor, 0, 0])
            row += -(-run.numel // ROW)
        return self.context.table(rows)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        wire, powers = payload.view(self.wire_dtype), Powers.of(shared)
        for run, target in self._pairs(wire):
            _divide(x[run.where], self.context.world, target, powers.up[run.tensor])
        wire[self.numel :].zero_()

    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        self._decode(sums, shared, x, 1)

    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        self._decode(payload, shared, x, self.context.world)

    def _decode(self, sums: Tensor, shared: Tensor, x: Tensor, times: int) -> None:
        powers = Powers.of(shared)
        for run, source in self._pairs(sums.reshape(-1).view(self.wire_dtype)):
            factor = times * powers.down[run.tensor]
            step = _run_of(x)
            for first in range(run.start, run.stop, step):
                part = slice(first, min(first + step, run.stop))
                x[part].copy_(source[part.start - run.start : part.stop - run.start]).mul_(factor)
            if (most := powers.most[run.tensor]) is not None:
                x[run.where].clamp_(-most, most)


@dataclass(frozen=True)
class Powers:
    """2^k and 2^-k of every tensor, and what its numbers are cut to: rounded up, some are beyond all floats.

    Numbers of the host, or tensors that stay on their device.
    """

    up: Sequence[Any]
    down: Sequence[Any]
    most: Sequence[Any]

    @classmethod
    def of(cls, words: Tensor) -> Powers:
        """From the largest |g| of every tensor, as bit patterns."""
        if is_host(words.device):
            found: list[int] = words.tolist()
            ks = [scale_exponent(word) for word in found]
            huge = [word >> MANTISSA_BITS == LARGEST_EXPONENT for word in found]
            most = [LARGEST if yes else None for yes in huge]
            return cls([2.0**k for k in ks], [2.0**-k for k in ks], most)
        exponents = words >> MANTISSA_BITS
        k = (141 - exponents).clamp(max=126)
        up, down = (((127 + one) << MANTISSA_BITS).view(torch.float32) for one in (k, -k))
        limits = torch.full_like(up, torch.inf).masked_fill_(exponents == LARGEST_EXPONENT, LARGEST)
        return cls(up.unbind(), down.unbind(), limits.unbind())


def scale_exponent(word: int) -> int:
    """k, of the largest |g| as a bit pattern: |g| 2^k is below 2^15, and 2^k and 2^-k are normal floats.

    >>> import struct
    >>> patterns = [struct.unpack("<i", struct.pack("<f", g))[0] for g in (0.0, 1e-30, 1.0, 65504.0, 1e30)]
    >>> [scale_exponent(word) for word in patterns]
    [126, 114, 14, -1, -85]
    """
    return min(126, 141 - (word >> MANTISSA_BITS))


def _divide(x: Tensor, by: int, out: Tensor, scale: float | Tensor | None = None) -> None:
    """out = x scale / by, rounded to out's dtype; in runs that fit a cache, so that no large temporary is
    made."""
    if x.dtype == out.dtype:
        torch.mul(x, 1 / by, out=out)  # as DDP does it: a division differs in the last bit
        return
    step = _run_of(x)
    for first in range(0, x.numel(), step):
        run = slice(first, first + step)
        out[run] = quotient(x[run] if scale is None else x[run] * scale, by)


def _run_of(x: Tensor) -> int:
    """Elements that are worked on at once: as many as fit a cache, on a device all."""
    return _RUN if is_host(x.device) else max(1, x.numel())


def _cut(runs: Sequence[Run], first: int, last: int) -> list[Run]:
    """The elements first..last of all runs, counted end to end."""
    cut, end = [], 0
    for run in runs:
        start, end = end, end + run.numel
        low, high = max(first, start), min(last, end)
        if low < high:
            cut.append(Run(run.start + low - start, run.start + high - start, run.tensor))
    return cut

"""Fourier and cosine stages, and FFT sparsification: the chain of fourier and topk that is called "fft"."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codecs.coder import ChainLink, Context, unit_size
from thinwire.codecs.rangefloat import RangeFloat
from thinwire.codecs.stage import BoundStage, Chain, Learned, LinearStage, RangedStage
from thinwire.codecs.topk import TopK
from thinwire.errors import CodecError
from thinwire.kernels.reference.fourier import run_passes
from thinwire.tensors import Layout, Spec
from thinwire.texts import START_RULE, check_start, option, read_chunk, show_chunk

_TERMS = 9  # of either series: enough for an eighth of a turn in float64
_SHARED = 1 << 16  # tables of rows up to this length are made once; longer ones belong to who asked
RADICES = (4, 2, 3, 5)  # passes in this order: later ones then work on long runs of numbers


def roots(places: Tensor, count: int) -> Tensor:
    """exp(-2 pi i place / count) as (cos, -sin) in float64, for integer places from 0 to count."""
    eighths = 8 * places
    octant, rest = eighths // count, eighths % count
    rest = torch.where(octant % 2 == 1, count - rest, rest)
    angle = rest.double() / count * (math.pi / 4)
    square, cosine, sine = angle * angle, torch.ones_like(angle), torch.ones_like(angle)
    for term in range(_TERMS, 0, -1):
        cosine = 1 - square * cosine / ((2 * term - 1) * (2 * term))
        sine = 1 - square * sine / ((2 * term) * (2 * term + 1))
    sine = sine * angle
    steep = (octant % 4 == 1) | (octant % 4 == 2)
    across, up = torch.where(steep, sine, cosine), torch.where(steep, cosine, sine)
    across = torch.where((octant % 8 >= 2) & (octant % 8 < 6), -across, across)
    up = torch.where(octant % 8 >= 4, -up, up)
    return torch.stack([across, -up], -1)


def radices_of(points: int) -> tuple[int, ...] | None:
    """The radices whose product is `points`, or None if 2, 3 and 5 do not make it up."""
    found: list[int] = []
    for radix in RADICES:
        while points % radix == 0:
            found.append(radix)
            points //= radix
    return tuple(found) if points == 1 else None


def pass_factors(points: int, radices: tuple[int, ...]) -> Tensor:
    """The factors of all passes: (radix - 1) of them for every group p = 1, 2, ... of a pass, in float64."""
    places, n = [torch.zeros(0, dtype=torch.int64)], points
    for radix in radices:
        p, k = torch.arange(1, n // radix), torch.arange(1, radix)
        places.append((p[:, None] * k * (points // n)).flatten())
        n //= radix
    return roots(torch.cat(places), points)


@dataclass(frozen=True)
class Turning:
    """A transform of rows of `length` numbers: Fourier's, or the cosine transform. Tables are float32."""

    length: int
    cosine: bool
    device: torch.device

    @property
    def points(self) -> int:
        """Of the complex transform inside."""
        return self.length if self.length % 2 else self.length // 2

    @cached_property
    def inner(self) -> int:
        """The length of the complex transforms that are run: `points`, or a power of two (Bluestein)."""
        return self.points if radices_of(self.points) is not None else 1 << (2 * self.points - 2).bit_length()

    @cached_property
    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """What kernels take: sizes, and the factors of passes, ends, chirp, filter and cosines, as pairs."""
        radices = radices_of(self.inner)
        assert radices is not None
        sizes = torch.tensor([self.length, self.points, self.inner, *radices])
        parts = pass_factors(self.inner, radices), self._ends(), *self._bluestein(), self._cosines()
        passes, ends, chirp, spectrum, cosines = (p.float().flatten().to(self.device) for p in parts)
        return sizes, passes, ends, chirp, spectrum, cosines

    def _ends(self) -> Tensor:
        """1/sqrt(n), 1/sqrt(2n), sqrt(2/n), 0; for even n then -i exp(-2 pi i k / n) / sqrt(2n)."""
        n = self.length
        scales = torch.tensor(
            [[1 / math.sqrt(n), 1 / math.sqrt(2 * n)], [math.sqrt(2 / n), 0.0]], dtype=torch.float64
        )
        if n % 2:
            return scales
        turns = roots(torch.arange(self.points // 2 + 1), n) * (1 / math.sqrt(2 * n))
        return torch.cat([scales, torch.stack([turns[:, 1], -turns[:, 0]], 1)])

    def _bluestein(self) -> tuple[Tensor, Tensor]:
        """exp(-i pi k^2 / N), and the spectrum of its mirror image, divided by its length."""
        if self.inner == self.points:
            return torch.zeros(0, 2), torch.zeros(0, 2)
        k = torch.arange(self.points)
        chirp = roots(k * k % (2 * self.points), 2 * self.points)
        re, im = torch.zeros(2, 1, self.inner, dtype=torch.float64)
        re[0, k], im[0, k] = chirp[:, 0], -chirp[:, 1]
        re[0, -k[1:]], im[0, -k[1:]] = chirp[1:, 0], -chirp[1:, 1]
        radices = radices_of(self.inner)
        assert radices is not None
        re, im = run_passes(re, im, radices, pass_factors(self.inner, radices))
        return chirp, torch.stack([re[0], im[0]], 1) / self.inner

    def _cosines(self) -> Tensor:
        """exp(-i pi k / 2n)."""
        if not self.cosine:
            return torch.zeros(0, 2)
        return roots(torch.arange((self.length + 1) // 2), 4 * self.length)


def turning(length: int, cosine: bool, device: torch.device) -> Turning:
    """The transform of one length; lanes share the tables of short ones."""
    return _shared(length, cosine, device) if length <= _SHARED else Turning(length, cosine, device)


@lru_cache(maxsize=64)
def _shared(length: int, cosine: bool, device: torch.device) -> Turning:
    return Turning(length, cosine, device)


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

    def prepare(self, shared: Tensor) -> None:
        pass

    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        for length, values, coordinates in self._views(x, y, first, last):
            self.kernels.forward(values, *self.turnings[length].tables, coordinates)

    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        for length, values, coordinates in self._views(x, y, first, last):
            self.kernels.inverse(coordinates, *self.turnings[length].tables, values)

    def _views(self, x: Tensor, y: Tensor, first: int, last: int) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Every batch, as far as it lies in the numbers first..last, with its rows of x and of y."""
        for batch in self.batches:
            length, width = batch.length, self.stage.width(batch.length)
            skipped = max(0, first - batch.target) // width
            count = min(batch.count, (last - batch.target) // width) - skipped
            if count > 0:
                source, target = batch.source + skipped * length, batch.target + skipped * width - first
                values, coordinates = x[source:], y[target:]
                yield (
                    length,
                    values[: count * length].view(count, length),
                    coordinates[: count * width].view(count, width),
                )


def check_chunk(name: str, chunk: int) -> None:
    """Refuses odd chunks: they would not fill whole pairs."""
    if chunk < 0 or chunk % 2:
        raise CodecError(f"{name}: chunk={chunk} must be an even number of at least 2, or tensor")


@dataclass(frozen=True)
class DCT(ChunkedStage):
    """The cosine transform of every chunk, orthonormal: n numbers to n numbers, ||y|| = ||x||.

    y_k = c_k sum_j x_j cos(pi k (2j + 1) / 2n), c_0 = sqrt(1/n), else sqrt(2/n), by one Fourier transform.
    Chunks are those of `fourier`. Unlike Fourier's, its basis does not wrap around: a chunk whose ends differ
    needs fewer cosines. It drops nothing, and decoding is linear.

    Makhoul, "A fast cosine transform in one and two dimensions", 1980.
    """

    cosine = True


@dataclass(frozen=True)
class Fourier(ChunkedStage):
    """The real Fourier transform of every chunk, orthonormal: what is dropped of y is lost of x, no more.

    1. a tensor is cut into chunks of `chunk` elements (an even number, or "tensor": one chunk, as in the
       paper); the last chunk, or a tensor shorter than a chunk, is transformed at its own length
    2. n numbers become ceil(n/2) pairs (X_0, X_(n/2)), then sqrt(2) (Re X_k, Im X_k) for k = 1, 2, ..., with
       X = rfft(x) / sqrt(n); for odd n there is no X_(n/2), and 0 stands in its place. A pair is a frequency,
       and its squares add up to its energy; selecting stages keep or drop whole pairs

    It drops nothing. Decoding is linear: spectra of all ranks are added, and one inverse transform follows.
    Sums of a chunk must fit a float32: numbers above 1e34 may come out as infinite, on all ranks alike.
    """

    group = 2


@dataclass(frozen=True)
class FFT(Chain):
    """Of all frequencies of a tensor floor(theta * frequencies), those of least energy, are dropped:

    fourier:chunk=CHUNK >> topk:drop=THETA      chosen among the chunks of about a million elements

    ||g - Q(g)||^2 <= theta ||g||^2 always, and Q is an orthogonal projection. Its numbers are packed by
    "rangefloat:10", as in the paper, or by another coder of floats: "fft:0.85 >> fp16". `start`: steps in
    which all frequencies travel, as float32.

    Wang et al., "FFT-based Gradient Sparsification for the Distributed Training of Deep Neural Networks",
    HPDC 2020.
    """

    default_coder = RangeFloat(bits=10)

    theta: float = option(0.85, float, "a part of the frequencies, from 0 to less than 1", repr)
    chunk: int = option(CHUNK, read_chunk, CHUNK_RULE, show_chunk)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if not 0 <= self.theta < 1:
            raise CodecError(
                f"fft: theta={self.theta:g}, the part of the frequencies that is dropped, must be at least 0 "
                "and less than 1; 0 drops nothing"
            )
        check_chunk("fft", self.chunk)
        check_start("fft", self.start)

    @property
    def short_for(self) -> tuple[ChainLink, ...]:
        """Frequencies, of which the strongest are kept."""
        return Fourier(self.chunk), TopK(drop=self.theta, chunk=unit_size(self.chunk), start=self.start)

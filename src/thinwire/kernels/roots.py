"""Tables of the Fourier and cosine transforms: roots of unity, the same bits on every machine.

No sine or cosine of a library is used, because libraries differ in the last bit: angles are reduced to an
eighth of a turn in integers, and the series is summed up in float64, one operation after the other.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from thinwire.kernels.reference.butterflies import run_passes

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

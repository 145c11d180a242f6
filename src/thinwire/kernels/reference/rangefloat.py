"""Range float kernels in plain torch: fitting, rounding to N-bit floats with packing, decoding.

The table has two columns, (offset, numel): the numbers that share a fit. Their codes lie end to end, as
fields of `bits` bits (reference/fields.py). A fit is (bit pattern of max|x|, mantissa bits). See
docs/reference/wire.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.kernels.reference.bits import INF_BITS, max_bits, ordered_sum, pack_fields, unpack_fields
from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows, stream_bytes

SAMPLE = 4096  # numbers on which the error of a fit is measured, at most
FIRST_NORMAL = 0x00800000
_NEVER = 1 << 31  # above the bit pattern of every |x|


def positive_codes(bits: int) -> int:
    """P: codes 1 .. P are positive numbers, P + 1 .. 2P negative ones, 0 is 0 and 2P + 1 says "not finite".

    >>> positive_codes(8), positive_codes(10)
    (127, 511)
    """
    return ((1 << bits) - 1) // 2


@dataclass(frozen=True)
class Grid:
    """The numbers that codes stand for: code k > 0 is the float with bit pattern (base + k - 1) << shift.

    `base` is at least the first normal float; where `top` is less (max|x| is 0 or denormal) all is 0.
    """

    shift: int
    base: int
    top: int

    @classmethod
    def of(cls, largest: int, mantissa: int, bits: int) -> Grid:
        """The grid that ends at max|x|, rounded to `mantissa` bits; at the largest such float at most.

        >>> grid = Grid.of(0x3F800000, 3, 8)  # max|x| = 1
        >>> grid.top - grid.base, hex(grid.base << grid.shift)
        (126, '0x37a00000')
        """
        shift = 23 - mantissa
        top = min((largest + (1 << (shift - 1))) >> shift, (INF_BITS - 1) >> shift)
        return cls(shift, max(top - (positive_codes(bits) - 1), 1 << mantissa), top)

    @property
    def half(self) -> int:
        """What makes cutting off the low bits a rounding to the nearest; ties go away from 0."""
        return 1 << (self.shift - 1)

    @property
    def threshold(self) -> int:
        """Below this bit pattern |x| becomes 0: that of eps / 2, and of the first normal float at least."""
        if self.top < self.base:
            return INF_BITS
        return max((self.base << self.shift) - FIRST_NORMAL, FIRST_NORMAL)

    @property
    def ceiling(self) -> int:
        """From this bit pattern on |x| would round to more than the greatest code stands for."""
        return _NEVER if self.top < self.base else (self.top << self.shift) + self.half

    def round(self, magnitude: Tensor) -> Tensor:
        """Bit patterns of |x| (int64) to the places base .. top of the nearest numbers, or 0."""
        place = (magnitude.clamp(max=self.top << self.shift) + self.half) >> self.shift
        return torch.where(magnitude < self.threshold, 0, place.clamp(min=self.base))


def measure(x: Tensor, table: Tensor, bits: int, first: int, count: int, largest: int, words: Tensor) -> None:
    """What a rank offers for every fit: max|x| unless `largest` gives it, then errors of `count` mantissas.

    The error of mantissa first + i is sum (x - q(x))^2 / sum x^2 over a sample: every s-th number, s odd.
    """
    for (offset, numel), row in zip(table.view(-1, 2).tolist(), _rows(words, table), strict=True):
        values = x[offset : offset + numel]
        own = largest or max_bits(values)
        if not largest:
            row[0] = own
        sample = values[:: -(-numel // SAMPLE) | 1]
        usable = max(own, max_bits(sample)) < INF_BITS
        for i in range(count):
            row[i - count] = _error_bits(sample, Grid.of(own, first + i, bits)) if usable else 0


def encode(x: Tensor, table: Tensor, fits: Tensor, bits: int, payload: Tensor, lost: Tensor) -> None:
    """Rounds and packs; `lost` counts, for every fit, the numbers too large and those that became 0."""
    numel = sum(numel for _, numel in table.view(-1, 2).tolist())
    codes = torch.zeros(_padded(numel, bits), dtype=torch.int64, device=x.device)
    start = 0
    pieces = zip(table.view(-1, 2).tolist(), fits.view(-1, 2).tolist(), lost.view(-1, 2), strict=True)
    for (offset, numel), (largest, mantissa), counts in pieces:
        values = x[offset : offset + numel].contiguous().view(torch.int32).to(torch.int64)
        codes[start : start + numel] = _codes(values, largest, mantissa, bits, counts)
        start += numel
    used = stream_bytes(start, bits)
    payload[:used] = pack_fields(codes, bits)[:used]


def decode(
    payloads: Tensor, num_payloads: int, table: Tensor, fits: Tensor, bits: int, factor: float, x: Tensor
) -> None:
    """x = sum of q * factor in the order of the payloads; NaN for all of a fit if one code of it says so.

    `fits`: those of the first payload, then those of the second, and so on.
    """
    codes = [_unpack(row, table, bits) for row in payloads.view(num_payloads, -1)]
    own_fits = fits.view(num_payloads, -1, 2).tolist() if fits.numel() else []
    _check_fits(own_fits)
    start = 0
    for index, (offset, numel) in enumerate(table.view(-1, 2).tolist()):
        total, bad = torch.zeros(numel, device=x.device), False
        for payload, (own, found) in enumerate(zip(codes, own_fits, strict=True)):
            piece = own[start : start + numel]
            largest, mantissa = found[index]
            values = _values(piece, largest, mantissa, bits) * factor
            total = values if payload == 0 else total + values
            bad |= bool((piece == 2 * positive_codes(bits) + 1).any())
        x[offset : offset + numel] = torch.nan if bad else total
        start += numel


def _check_fits(fits: list[list[list[int]]]) -> None:
    """They come with a payload: a damaged one must not shift by a negative number of bits."""
    for own in fits:
        for largest, mantissa in own:
            if largest < 0 or not 0 <= mantissa <= 22:
                raise ValueError("fits: the bit pattern of max|x| and 0 to 22 mantissa bits wanted")


def _rows(words: Tensor, table: Tensor) -> Iterator[Tensor]:
    """The words of every fit."""
    return iter(words.view(table.numel() // 2, -1)) if table.numel() else iter(())


def _error_bits(sample: Tensor, grid: Grid) -> int:
    raw = sample.contiguous().view(torch.int32).to(torch.int64)
    place = grid.round(raw & 0x7FFFFFFF)
    rounded = (place << grid.shift).to(torch.int32).view(torch.float32)
    energy = ordered_sum(sample.double().square())
    if energy == 0.0:
        return 0
    error = ordered_sum((sample.abs().double() - rounded.double()).square()) / energy
    return int(torch.tensor(error, dtype=torch.float64).float().view(torch.int32))


def _codes(raw: Tensor, largest: int, mantissa: int, bits: int, counts: Tensor) -> Tensor:
    """Codes of float bit patterns."""
    not_finite = 2 * positive_codes(bits) + 1
    counts.zero_()
    if largest >= INF_BITS:
        return torch.full_like(raw, not_finite)
    grid, magnitude = Grid.of(largest, mantissa, bits), raw & 0x7FFFFFFF
    counts[0] = (magnitude >= grid.ceiling).sum()
    counts[1] = ((magnitude > 0) & (magnitude < grid.threshold)).sum()
    place = grid.round(magnitude)
    code = torch.where(place > 0, place - grid.base + 1 + positive_codes(bits) * (raw < 0), 0)
    return torch.where(magnitude >= INF_BITS, not_finite, code)


def _values(codes: Tensor, largest: int, mantissa: int, bits: int) -> Tensor:
    """What codes stand for, as float32."""
    grid, top = Grid.of(min(largest, INF_BITS - 1), mantissa, bits), positive_codes(bits)
    negative = codes > top
    pattern = ((codes - top * negative + grid.base - 1) << grid.shift) & 0xFFFFFFFF
    pattern = torch.where(codes == 0, 0, pattern | (negative.to(torch.int64) << 31))
    signed = torch.where(pattern >= 1 << 31, pattern - (1 << 32), pattern)
    return signed.to(torch.int32).view(torch.float32)


def _padded(numel: int, bits: int) -> int:
    """Codes in whole granules."""
    return -(-numel // (ROW * field_rows(bits))) * ROW * field_rows(bits)


def _unpack(payload: Tensor, table: Tensor, bits: int) -> Tensor:
    numel = sum(numel for _, numel in table.view(-1, 2).tolist())
    granules = _padded(numel, bits) // (ROW * field_rows(bits))
    used = payload[: stream_bytes(numel, bits)]
    whole = torch.nn.functional.pad(used, (0, granules * field_granule_bytes(bits) - used.numel()))
    return unpack_fields(whole, bits)

"""The range float coder: N-bit floats whose range and mantissa are fitted to the numbers at hand."""

from __future__ import annotations

import dataclasses
import functools
import struct
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import UNIT, Coder, Context, GatherPacker, Merge, Packer, unit_size
from thinwire.codecs.levels import BLOCK_RULE, read_block, show_block
from thinwire.errors import CodecError
from thinwire.kernels.sizes import ROW, stream_bytes
from thinwire.tensors import Key, Layout
from thinwire.texts import option

MIN_BITS, MAX_BITS = 4, 16
FIT_BYTES = 8
SMALLEST, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max


def _read_mantissa(text: str) -> int | None:
    return None if text == "auto" else int(text)


def _read_max(text: str) -> float | None:
    return None if text == "auto" else float(text)


def _show(value: float | None) -> str:
    """All digits: ranks compare these texts to find out whether their codecs are the same."""
    return "auto" if value is None else repr(value)


@dataclass(frozen=True)
class RangeFloat(Coder):
    """Floats of N bits with m bits of mantissa and P = 2^(N-1) - 1 numbers of either sign, for each block:

    1. max = the largest |x| of this worker; m = the one with the least error, measured on a sample; both
       travel with the codes
    2. sh = 23 - m; top = u32(max) >> sh, rounded; base = top - (P - 1), the first normal float at least
    3. k = u32(|x|) >> sh, rounded, less base - 1; 1 .. P; and 0 if |x| is less than half the smallest number
    4. the code is k for x > 0, P + k for x < 0: N bits, no sign bit
    5. the mean is the mean over the ranks of what their codes stand for

    |x - q(x)| <= 2^-(m+1) |x| from eps = max * 2^(-(P-1)/2^m) (about) to max; |x| > max, which only a given
    `max` allows, becomes max; |x| < eps/2 becomes 0. Both are counted. Wang et al., "FFT-based Gradient
    Sparsification for the Distributed Training of Deep Neural Networks", HPDC 2020.
    """

    merge = Merge.GATHER

    bits: int = option(10, int, f"{MIN_BITS} to {MAX_BITS} bits an element")
    mantissa: int | None = option(None, _read_mantissa, '"auto", or a number of bits', _show)
    max: float | None = option(None, _read_max, '"auto", or the largest magnitude', _show)
    block: int = option(UNIT, read_block, BLOCK_RULE, show_block)

    def __post_init__(self) -> None:
        if not MIN_BITS <= self.bits <= MAX_BITS:
            raise CodecError(
                f"rangefloat: bits={self.bits} must be {MIN_BITS} to {MAX_BITS}; for fewer use qsgd, "
                "for more use dense"
            )
        if self.mantissa is not None and not 0 <= self.mantissa <= self.bits - 2:
            raise CodecError(
                f"rangefloat: mantissa={self.mantissa} must be 0 to bits - 2 = {self.bits - 2}, or auto"
            )
        if self.max is not None and not SMALLEST <= self.max <= LARGEST:
            raise CodecError(
                f"rangefloat: max={self.max:g} must be a number from {SMALLEST:.4g} to {LARGEST:.4g}, or auto"
            )
        if self.block < 0 or self.block % ROW:
            raise CodecError(f"rangefloat: block={self.block} must be a multiple of {ROW}, or layer")

    @property
    def feedback(self) -> str:
        """None while no number errs by more than 1/8 of itself, and only numbers far below max become 0.

        Rounding is biased, but by so little that it is as harmless as that of fp16. Where numbers are cut off
        (max=), rounded coarsely (m < 2) or dropped within 7 binades of max, what is lost must be held back.
        """
        fine = self.bits >= 6 and (self.mantissa is None or 2 <= self.mantissa <= self.bits - 4)
        return "none" if fine and self.max is None else "residual"

    def at_level(self, level: float) -> RangeFloat:
        """Bits grow to 16 as the compression level falls; a given mantissa grows too, so the range stays.

        >>> [RangeFloat(6).at_level(level).bits for level in (1.0, 0.5, 0.0)]
        [6, 12, 16]
        """
        bits = MAX_BITS if level <= 0 else min(MAX_BITS, round(self.bits / level))
        mantissa = None if self.mantissa is None else self.mantissa + bits - self.bits
        return dataclasses.replace(self, bits=bits, mantissa=mantissa)

    @property
    def mantissas(self) -> range:
        """The mantissa bits to choose from: 2 .. N - 3, and from N - 4 on if N is less than 6.

        >>> [list(RangeFloat(bits).mantissas) for bits in (4, 5, 6, 8)]
        [[0, 1], [1, 2], [2, 3], [2, 3, 4, 5]]
        """
        if self.mantissa is not None:
            return range(self.mantissa, self.mantissa + 1)
        return range(min(2, self.bits - 4), self.bits - 2)

    @property
    def max_bits(self) -> int:
        """The given maximum as the bit pattern of a float32; 0 if each tensor's own is taken."""
        if self.max is None:
            return 0
        (pattern,) = struct.unpack("<I", struct.pack("<f", self.max))
        return int(pattern)

    def bind(self, layout: Layout, context: Context) -> Packer:
        return RangeFloatPacker(self, layout.units(unit_size(self.block)), context)


class RangeFloatPacker(GatherPacker):
    """Codes of all tensors end to end, then for every fit the bit pattern of max|x| and the mantissa bits."""

    def __init__(self, coder: RangeFloat, layout: Layout, context: Context) -> None:
        self.coder = coder
        self.pieces: list[tuple[int, int]] = []  # (offset, numel) of the numbers that share a fit
        self.names: list[str] = []  # of the tensors they belong to
        for spec, offset in zip(layout.specs, layout.offsets, strict=True):
            step = coder.block or max(1, spec.numel)
            for first in range(0, spec.numel, step):
                self.pieces.append((offset + first, min(step, spec.numel - first)))
                self.names.append(spec.name)
        self.table = context.table(self.pieces)
        self.code_bytes = stream_bytes(layout.numel, coder.bits)
        super().__init__(layout, context, self.code_bytes + FIT_BYTES * len(self.pieces))

    def rebind(self, layout: Layout) -> RangeFloatPacker:
        return RangeFloatPacker(self.coder, layout, self.context)

    @functools.cached_property
    def lost(self) -> Tensor:
        """By fit, of the payload encoded last: how many numbers were too large, how many became 0."""
        return torch.zeros(2 * len(self.pieces), dtype=torch.int64, device=self.context.device)

    @functools.cached_property
    def used(self) -> Tensor:
        """The mantissa bits of the payload encoded last, by fit."""
        return torch.zeros(len(self.pieces), dtype=torch.int32, device=self.context.device)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        if self.pieces:  # else only empty tensors
            fits = self._fit(x)
            self.context.kernels.rangefloat.encode(
                x, self.table, fits, self.coder.bits, payload[: self.code_bytes], self.lost
            )
            payload[self.code_bytes : self.granule_bytes].view(torch.int32).copy_(fits)
            self.used.copy_(fits[1::2])

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count = payloads.shape[0]
        sent = payloads[:, self.code_bytes :].view(torch.int32)
        fits = self.context.room("fits", *sent.shape, dtype=torch.int32).copy_(sent).flatten()
        self.context.kernels.rangefloat.decode(
            payloads.reshape(-1), count, self.table, fits, self.coder.bits, 1 / count, x
        )

    def tallies(self) -> dict[str, dict[str, float]]:
        numel: dict[str, int] = {}
        for name, (_, count) in zip(self.names, self.pieces, strict=True):
            numel[name] = numel.get(name, 0) + count
        found = {name: {"mantissa": 0.0, "saturated": 0.0, "underflow": 0.0} for name in numel}
        rows = zip(self.names, self.pieces, self.used.tolist(), self.lost.view(-1, 2).tolist(), strict=True)
        for name, (_, count), mantissa, (saturated, underflown) in rows:
            found[name]["mantissa"] += mantissa * count / numel[name]
            found[name]["saturated"] += saturated / numel[name]
            found[name]["underflow"] += underflown / numel[name]
        return found

    def _fit(self, x: Tensor) -> Tensor:
        """(bit pattern of max|x|, mantissa bits) of every fit; of equal errors the fewest bits win."""
        coder, count = self.coder, len(self.coder.mantissas)
        num_errors = count if count > 1 else 0
        width = (coder.max is None) + num_errors
        words = self.context.room("words", len(self.pieces), width, dtype=torch.int32).zero_()
        if words.numel():
            first = coder.mantissas.start
            self.context.kernels.rangefloat.measure(
                x, self.table, coder.bits, first, num_errors, coder.max_bits, words.view(-1)
            )
        fits = self.context.room("fits", len(self.pieces), 2, dtype=torch.int32)
        if coder.max is None:
            fits[:, 0].copy_(words[:, 0])
        else:
            fits[:, 0].fill_(coder.max_bits)
        fits[:, 1].fill_(coder.mantissas.start)
        if num_errors:
            least = self.context.room("least", len(self.pieces), dtype=torch.int64)
            fits[:, 1].add_(torch.argmin(words[:, -num_errors:], 1, out=least))
        return fits.flatten()

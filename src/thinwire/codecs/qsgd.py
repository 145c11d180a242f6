"""The QSGD coder: gradients as a few bits times a scale per block."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from torch import Tensor

from thinwire.codecs.coder import Builder, Coder, Context, Merge, Packer, unit_size
from thinwire.codecs.levels import (
    BLOCK_RULE,
    RANDOM,
    ROUNDING_RULE,
    ROUNDINGS,
    STEP_RULE,
    Levels,
    OwnPacker,
    Rows,
    SharedPacker,
    check_step,
    gain_of,
    read_block,
    show_block,
)
from thinwire.codecs.rotate import Normalize
from thinwire.errors import CodecError
from thinwire.kernels.base import QsgdKernels
from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows
from thinwire.tensors import Key, Layout
from thinwire.texts import number_or_off, one_of, option, show_number_or_off, show_yes_or_no, yes_or_no

MAX_BITS = 8


@dataclass(frozen=True)
class QSGD(Coder):
    """Stochastic rounding to 2s + 1 levels, s = 2^(bits - 1) - 1, for each block of worker i:

    1. n_i = max|g| (norm="max") or |g|_2 (norm="l2")
    2. n = max_i n_i (scales="shared") or n = n_i (scales="own"); the step is n / s
    3. l = floor(|g_k| / step), and one more with probability |g_k| / step - l
    4. q_k = sign(g_k) * l, sent as q_k + s in exactly `bits` bits
    5. the mean is n / (s N) * sum_i q_i, exact (shared), else the mean of n_i / s * q_i

    Unbiased, so no error feedback. With d elements in a block and l2,
    E|Q(g) - g|^2 <= min(d / s^2, sqrt(d) / s) |g|^2; max is the smaller scale and errs less. 2 bits and one
    block per layer are TernGrad without clipping.

    Beyond the paper: rounding="nearest" takes the nearest level. `step` replaces the norm: levels are so many
    standard deviations (around 0) of the block over all ranks apart (rotate.Normalize), and what rounding
    takes away from a Gaussian is divided out (`unbiased`).
    Alistarh et al., "QSGD", NeurIPS 2017.
    """

    bits: int = option(4, int, "2 to 8 bits an element")
    block: int = option(512, read_block, BLOCK_RULE, show_block)
    norm: str = option("max", one_of("max", "l2"), '"max" or "l2"')
    scales: str = option("shared", one_of("shared", "own"), '"shared" or "own"')
    rounding: str = option(RANDOM, one_of(*ROUNDINGS), ROUNDING_RULE)
    step: float = option(math.inf, number_or_off, STEP_RULE, show_number_or_off)
    unbiased: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)

    def __post_init__(self) -> None:
        if not 2 <= self.bits <= 8:
            raise CodecError(f"qsgd: bits={self.bits} must be 2 to 8; for one bit use sign, for 16 use bf16")
        if self.block < 0 or self.block % ROW:
            raise CodecError(f"qsgd: block={self.block} must be a multiple of {ROW}, or layer")
        check_step("qsgd", self)

    @property
    def merge(self) -> Merge:
        return Merge.INT if self.scales == "shared" else Merge.GATHER

    @property
    def fixed(self) -> bool:
        """Whether levels are a number of standard deviations apart, so that values come normalized."""
        return math.isfinite(self.step)

    def join(self, builder: Builder) -> None:
        if self.fixed:
            builder.add_linear(Normalize(self.block))
        builder.end_with(self)

    def at_level(self, level: float) -> QSGD | None:
        """Bits grow to 8 as the compression level falls; levels at a given distance have one level only.

        >>> [made.bits for level in (1.0, 0.5, 0.25, 0.0) if (made := QSGD(2).at_level(level))]
        [2, 4, 8, 8]
        """
        if self.fixed:
            return None
        bits = MAX_BITS if level <= 0 else min(MAX_BITS, round(self.bits / level))
        return dataclasses.replace(self, bits=bits)

    def bind(self, layout: Layout, context: Context) -> Packer:
        def levels(part: Layout) -> QsgdLevels:
            rows = Rows.of(part, field_rows(self.bits), 0 if self.fixed else self.block, context.tables)
            return QsgdLevels(self, rows, context.kernels.qsgd)

        if self.scales == "shared":
            return SharedPacker(f"qsgd:{self.bits}", levels(layout), context)
        return OwnPacker(levels, layout.units(unit_size(self.block)), context)


class QsgdLevels(Levels):
    """Levels -s..s as codes 0..2s, fields of `bits` bits in 32-bit words."""

    kernels: QsgdKernels

    def __init__(self, coder: QSGD, rows: Rows, kernels: QsgdKernels) -> None:
        self.coder, self.rows, self.kernels = coder, rows, kernels
        self.top = (1 << (coder.bits - 1)) - 1
        self.granule_bytes = field_granule_bytes(coder.bits)
        if coder.fixed:
            self.fixed_scale, self.gain = coder.step * self.top, gain_of(coder, self.top)

    def cut(self, rows: Rows) -> Levels:
        return QsgdLevels(self.coder, rows, self.kernels)

    def measure(self, x: Tensor, words: Tensor) -> None:
        self.kernels.scales(x, self.rows.table, self.coder.norm == "l2", words)

    def draw(self, x: Tensor, steps: Tensor, key: Key, codes: Tensor) -> None:
        keys = self.rows.key_words(key, self.coder.rounding)
        self.kernels.encode(x, self.rows.table, keys, steps, self.coder.bits, codes)

    def add(self, payloads: Tensor, sum_digits: int, words: Tensor) -> None:
        self.kernels.add(payloads.reshape(-1), payloads.shape[0], self.coder.bits, sum_digits, words)

    def decode_local(self, payloads: Tensor, steps: Tensor, x: Tensor) -> None:
        self.kernels.decode_own(
            payloads.reshape(-1), payloads.shape[0], self.coder.bits, self.rows.table, steps.reshape(-1), x
        )

"""The ternary coder: gradients as {-1, 0, +1} times a scale (TernGrad)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
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
    max_world,
    read_block,
    show_block,
)
from thinwire.codecs.rotate import Normalize
from thinwire.errors import CodecError
from thinwire.kernels.base import TernaryKernels
from thinwire.kernels.sizes import ROW
from thinwire.tensors import Key, Layout
from thinwire.texts import number_or_off, one_of, option, show_number_or_off, show_yes_or_no, yes_or_no

MAX_WORLD = max_world(top=1)
CUTS = 2.0  # a clip below so many standard deviations drops more than 1 % of a Gaussian's energy


@dataclass(frozen=True)
class TernGrad(Coder):
    """Stochastic ternarizing, for each layer (or block) of worker i:

    1. sigma = sqrt(mean((g - mean(g))^2)); f(g) = clamp(g, -c*sigma, +c*sigma)
    2. s_i = max|f(g)| (scaler="max", the paper) or c*sigma (scaler="sigma", the authors' code)
    3. s = max_i s_i (scales="shared") or s = s_i (scales="own")
    4. t_k = sign(g_k) * b_k with b_k ~ Bernoulli(|f(g_k)| / s)
    5. the mean is s/N * sum_i t_i, at most 2N + 1 levels (shared), else the mean of s_i * t_i

    A layer with sigma = 0 is not clipped. Wen et al., "TernGrad", NeurIPS 2017.

    Unbiased but for what is clipped. A smaller c trades noise for bias: on a Gaussian |Q(g) - g|^2 is
    1.0 |g|^2 at c = 2.5 and 0.27 |g|^2 at c = 1, more than half of it what was cut off. That makes it a
    contraction, so below c = 2 what is dropped is held back (feedback "residual").

    Beyond the paper: rounding="nearest" takes t_k = sign(g_k) where |g_k| > s / 2. `step` replaces clip and
    scaler: s is so many standard deviations (around 0) of the block over all ranks (rotate.Normalize), what
    rounding takes away from a Gaussian is divided out (`unbiased`), and nothing is held back.
    """

    clip: float = option(2.5, number_or_off, 'a positive number, or "off"', show_number_or_off)
    scaler: str = option("max", one_of("max", "sigma"), '"max" or "sigma"')
    scales: str = option("shared", one_of("shared", "own"), '"shared" or "own"')
    block: int = option(0, read_block, BLOCK_RULE, show_block)
    wire: str = option("base3", one_of("base3", "2bit"), '"base3" or "2bit"')
    rounding: str = option(RANDOM, one_of(*ROUNDINGS), ROUNDING_RULE)
    step: float = option(math.inf, number_or_off, STEP_RULE, show_number_or_off)
    unbiased: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)

    def __post_init__(self) -> None:
        if not self.clip > 0:
            raise CodecError(f"terngrad: clip={self.clip:g} must be positive; use clip=off for no clipping")
        if self.block < 0 or self.block % ROW:
            raise CodecError(f"terngrad: block={self.block} must be a multiple of {ROW}, or layer")
        if self.scaler == "sigma" and math.isinf(self.clip):
            raise CodecError(
                "terngrad: scaler=sigma is c*sigma, so it needs clip; use scaler=max with clip=off"
            )
        check_step("terngrad", self)

    @property
    def feedback(self) -> str:
        return "residual" if self.clip < CUTS and not self.fixed else "none"

    @property
    def fixed(self) -> bool:
        """Whether the scale is a number of standard deviations, so that values come normalized."""
        return math.isfinite(self.step)

    def join(self, builder: Builder) -> None:
        if self.fixed:
            builder.add_linear(Normalize(self.block))
        builder.end_with(self)

    @property
    def merge(self) -> Merge:
        return Merge.INT if self.scales == "shared" else Merge.GATHER

    @property
    def digits(self) -> int:
        """Trits in a byte."""
        return 5 if self.wire == "base3" else 4

    def bind(self, layout: Layout, context: Context) -> Packer:
        def levels(part: Layout) -> TernaryLevels:
            rows = Rows.of(part, self.digits, 0 if self.fixed else self.block, context.tables)
            limits = torch.full((rows.num_scales,), math.inf, device=context.device)
            return TernaryLevels(self, rows, limits, context.kernels.ternary)

        if self.scales == "shared":
            return SharedPacker("terngrad", levels(layout), context)
        return OwnPacker(levels, layout.units(unit_size(self.block)), context)


class TernaryLevels(Levels):
    """Trits -1, 0, +1 times the scale: digits of a base 3 (or 4) in a byte."""

    kernels: TernaryKernels
    top = 1
    granule_bytes = ROW

    def __init__(self, coder: TernGrad, rows: Rows, limits: Tensor, kernels: TernaryKernels) -> None:
        self.coder, self.rows, self.limits, self.kernels = coder, rows, limits, kernels
        self.digits = coder.digits
        if coder.fixed:
            self.fixed_scale, self.gain = coder.step, gain_of(coder, self.top)

    def cut(self, rows: Rows) -> Levels:
        return TernaryLevels(self.coder, rows, self.limits, self.kernels)

    def measure(self, x: Tensor, words: Tensor) -> None:
        scaler_is_limit = self.coder.scaler == "sigma"
        self.kernels.scales(x, self.rows.table, self.coder.clip, scaler_is_limit, words, self.limits)

    def draw(self, x: Tensor, steps: Tensor, key: Key, codes: Tensor) -> None:
        keys = self.rows.key_words(key, self.coder.rounding)
        self.kernels.encode(x, self.rows.table, keys, steps, self.limits, self.digits, codes)

    def add(self, payloads: Tensor, sum_digits: int, words: Tensor) -> None:
        self.kernels.add(payloads.reshape(-1), payloads.shape[0], self.digits, sum_digits, words)

    def decode_local(self, payloads: Tensor, steps: Tensor, x: Tensor) -> None:
        self._decode_one(payloads[0], steps[0], x)
        one = torch.empty_like(x) if payloads.shape[0] > 1 else x
        for payload, own_steps in zip(payloads[1:], steps[1:], strict=True):
            self._decode_one(payload, own_steps, one)
            for s in self.rows.segments:
                x[s.offset : s.offset + s.numel] += one[s.offset : s.offset + s.numel]

    def _decode_one(self, payload: Tensor, steps: Tensor, x: Tensor) -> None:
        trits = payload[: self.rows.num_granules * ROW]
        self.kernels.decode_own(trits, self.digits, self.rows.table, steps, x)

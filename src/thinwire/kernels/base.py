"""What a set of kernels offers, one family per codec that needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor


class SumKernels(Protocol):
    """Kernels of codecs whose payloads add up as integers (csrc/words.h); results are written in place."""

    def decode_sum(
        self,
        words: Tensor,
        num_shards: int,
        rows_per_shard: int,
        zero: int,
        sum_digits: int,
        table: Tensor,
        steps: Tensor,
        x: Tensor,
        /,
    ) -> None: ...


class TernaryKernels(SumKernels, Protocol):
    """Tensors are flat; `table` has six columns (csrc/lane.h); results are written in place."""

    def scales(
        self,
        x: Tensor,
        table: Tensor,
        clip: float,
        scaler_is_limit: bool,
        scale_bits: Tensor,
        limits: Tensor,
        /,
    ) -> None: ...

    def encode(
        self,
        x: Tensor,
        table: Tensor,
        keys: Tensor,
        scale: Tensor,
        limits: Tensor,
        digits: int,
        payload: Tensor,
        /,
    ) -> None: ...

    def add(
        self, payloads: Tensor, num_payloads: int, digits: int, sum_digits: int, words: Tensor, /
    ) -> None: ...

    def decode_own(
        self, payload: Tensor, digits: int, table: Tensor, scale: Tensor, x: Tensor, /
    ) -> None: ...


class TopkKernels(Protocol):
    """Tensors are flat; `table` has nine columns (csrc/topk.h); results are written in place."""

    def select(self, x: Tensor, table: Tensor, indices: Tensor, values: Tensor, /) -> None: ...

    def scatter(
        self, payloads: Tensor, num_payloads: int, table: Tensor, values: Tensor, factor: float, x: Tensor, /
    ) -> None: ...


class QsgdKernels(SumKernels, Protocol):
    """Tensors are flat; `table` has six columns (csrc/lane.h); results are written in place."""

    def scales(self, x: Tensor, table: Tensor, l2: bool, scale_bits: Tensor, /) -> None: ...

    def encode(
        self, x: Tensor, table: Tensor, keys: Tensor, steps: Tensor, bits: int, payload: Tensor, /
    ) -> None: ...

    def add(
        self, payloads: Tensor, num_payloads: int, bits: int, sum_digits: int, words: Tensor, /
    ) -> None: ...

    def decode_own(
        self, payloads: Tensor, num_payloads: int, bits: int, table: Tensor, steps: Tensor, x: Tensor, /
    ) -> None: ...


class SignKernels(Protocol):
    """Tensors are flat; `table` has six columns (csrc/lane.h); results are written in place."""

    def encode(
        self, x: Tensor, table: Tensor, scaled: bool, payload: Tensor, low: Tensor, high: Tensor, /
    ) -> None: ...

    def decode(
        self, payloads: Tensor, num_payloads: int, table: Tensor, low: Tensor, high: Tensor, x: Tensor, /
    ) -> None: ...


class NaturalKernels(Protocol):
    """Tensors are flat; `table` has three columns (reference/natural.py); results are written in place."""

    def encode(self, x: Tensor, table: Tensor, keys: Tensor, payload: Tensor, /) -> None: ...

    def decode(self, payloads: Tensor, num_payloads: int, table: Tensor, x: Tensor, /) -> None: ...


class RangefloatKernels(Protocol):
    """Tensors are flat; `table` has two columns (csrc/rangefloat.h); results are written in place."""

    def measure(
        self,
        x: Tensor,
        table: Tensor,
        bits: int,
        first: int,
        count: int,
        largest: int,
        words: Tensor,
        /,
    ) -> None: ...

    def encode(
        self, x: Tensor, table: Tensor, fits: Tensor, bits: int, payload: Tensor, lost: Tensor, /
    ) -> None: ...

    def decode(
        self,
        payloads: Tensor,
        num_payloads: int,
        table: Tensor,
        fits: Tensor,
        bits: int,
        factor: float,
        x: Tensor,
        /,
    ) -> None: ...


class ProductsKernels(Protocol):
    """Matrices in one order of additions (csrc/products.h); results are written in place."""

    def product(self, a: Tensor, b: Tensor, start: Tensor, c: Tensor, /) -> None: ...

    def orthonormal(self, p: Tensor, /) -> None: ...

    def eigen(self, a: Tensor, values: Tensor, /) -> None: ...


class FourierKernels(Protocol):
    """Rows of numbers; the six tables are those of roots.Turning; results are written in place."""

    def forward(
        self,
        x: Tensor,
        sizes: Tensor,
        passes: Tensor,
        ends: Tensor,
        chirp: Tensor,
        spectrum: Tensor,
        cosines: Tensor,
        y: Tensor,
        /,
    ) -> None: ...

    def inverse(
        self,
        y: Tensor,
        sizes: Tensor,
        passes: Tensor,
        ends: Tensor,
        chirp: Tensor,
        spectrum: Tensor,
        cosines: Tensor,
        x: Tensor,
        /,
    ) -> None: ...


class HadamardKernels(Protocol):
    """Tensors are flat; `table` has six columns (csrc/hadamard.h); results are written in place."""

    def forward(
        self, x: Tensor, table: Tensor, keys: Tensor, factors: Tensor, size: int, y: Tensor, /
    ) -> None: ...

    def inverse(
        self, y: Tensor, table: Tensor, keys: Tensor, factors: Tensor, size: int, x: Tensor, /
    ) -> None: ...


class TurnedKernels(Protocol):
    """A rotation and rounding to the nearest level, there and back: the bits of one after the other.

    They go tile by tile: what would lie between them is never made as a whole. `runs` is the table of
    `HadamardKernels`, `table` that of the coder: the same elements, entry by entry.
    """

    def encode_ternary(
        self,
        x: Tensor,
        runs: Tensor,
        keys: Tensor,
        factors: Tensor,
        size: int,
        table: Tensor,
        scales: Tensor,
        bounds: Tensor,
        digits: int,
        payload: Tensor,
        /,
    ) -> None: ...

    def encode_qsgd(
        self,
        x: Tensor,
        runs: Tensor,
        keys: Tensor,
        factors: Tensor,
        size: int,
        table: Tensor,
        steps: Tensor,
        bits: int,
        payload: Tensor,
        /,
    ) -> None: ...

    def decode_sum(
        self,
        words: Tensor,
        num_shards: int,
        rows_per_shard: int,
        zero: int,
        sum_digits: int,
        table: Tensor,
        steps: Tensor,
        runs: Tensor,
        keys: Tensor,
        factors: Tensor,
        size: int,
        x: Tensor,
        /,
    ) -> None: ...


@dataclass(frozen=True)
class Kernels:
    """A named set of kernels. `name` is "reference", "cpu-<instruction set>" or "triton".

    `turned`: two kernels in one call, where that is faster. `on_device`: the host only launches them, so
    tables and keys are wanted where the tensors are.
    """

    name: str
    ternary: TernaryKernels
    topk: TopkKernels
    qsgd: QsgdKernels
    sign: SignKernels
    natural: NaturalKernels
    rangefloat: RangefloatKernels
    products: ProductsKernels
    fourier: FourierKernels
    hadamard: HadamardKernels
    turned: TurnedKernels | None = None
    on_device: bool = False

"""Stages over blocks: a random rotation, after which values are nearly Gaussian; and division by sigma."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.codecs.coder import Context
from thinwire.codecs.levels import BLOCK_RULE, Rows, cut_points, read_block, show_block
from thinwire.codecs.stage import BoundStage, Learned, LinearStage, RangedStage
from thinwire.devices import int_words, quotient
from thinwire.errors import CodecError
from thinwire.kernels.sizes import ROW
from thinwire.tensors import Layout, Piece, Spec
from thinwire.texts import option

BLOCK = 512
MAX_BLOCK = 4096
_LARGEST = torch.finfo(torch.float32).max


@dataclass(frozen=True)
class Normalize(LinearStage):
    """Every block in units of its standard deviation (around 0) over all ranks.

    1. n_i = |x_i| of rank i's block; sigma = mean_i n_i / sqrt(block), from one sum over all ranks
    2. y_i = x_i / sigma; decoded by x = sigma y

    No text names it: coders with step= put it before themselves. For ranks that differ little the mean of
    their norms gives the step with the least error (the root of the mean square comes next), and unlike a
    sum of squares it has the range of the gradients themselves.
    """

    block: int = option(BLOCK, read_block, BLOCK_RULE, show_block)

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundRotation(1, self.block, layout, context)


@dataclass(frozen=True)
class Rotate(LinearStage):
    """y = H (s o x) in blocks of `block` elements, a power of two:

    1. signs s are drawn from (seed, step, tensor): the same on all ranks, new in every step
    2. H is the orthonormal Hadamard matrix; what is left at the end of a tensor is cut into the powers of two
       that make it up
    3. decoding is linear: x = s o H y, once, on the sum

    Rotated values are nearly Gaussian whatever the gradients were, so a few levels at the right distance err
    little; and because the rotation is drawn anew, rounding errors of successive steps do not add up in one
    direction. Squares are preserved: `normalize` (set by coders with step=) divides by the standard deviation
    of a block over all ranks in the same pass.

    Suresh et al., "Distributed Mean Estimation with Limited Communication", ICML 2017; Vargaftik et al.,
    "EDEN", ICML 2022.
    """

    draws_alike = True

    block: int = option(BLOCK, int, f"a power of two from {ROW} to {MAX_BLOCK}")
    normalize: int = option(
        -1, read_block, BLOCK_RULE, show_block
    )  # elements with one sigma; -1: as they are

    def __post_init__(self) -> None:
        if not ROW <= self.block <= MAX_BLOCK or self.block & (self.block - 1):
            raise CodecError(f"rotate: block={self.block} must be a power of two from {ROW} to {MAX_BLOCK}")

    def with_behind(self, stage: LinearStage) -> LinearStage | None:
        """Squares of whole blocks are those of the values before: the sums need not wait for the rotation."""
        if isinstance(stage, Normalize) and self.normalize < 0 and stage.block % self.block == 0:
            return replace(self, normalize=stage.block)
        return None

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundRotation(self.block, self.normalize, layout, context)


class BoundRotation(RangedStage):
    """Blocks of `size` elements are turned; those of `block` (0: a tensor, -1: none) share a sigma."""

    def __init__(self, size: int, block: int, layout: Layout, context: Context) -> None:
        self.size, self.block, self.layout, self.context = size, max(block, 0), layout, context
        self.normalizes = block >= 0
        self.out = Layout.packed(Spec(spec.name, (spec.numel,)) for spec in layout.specs)
        self.rows = Rows.of(layout, 1, self.block, context.tables)
        self.num_summands = self.rows.num_scales if self.normalizes else 0
        ones = torch.ones(self.rows.num_scales, device=context.device)
        self.divisors, self.factors = ones, ones  # of `forward` and of `inverse`
        self._tables: dict[tuple[int, int], tuple[Tensor, list[str]]] = {}

    def summands(self, x: Tensor) -> Tensor:
        if not self.normalizes:
            return x.new_empty(0)
        bits = torch.empty(self.num_summands, dtype=torch.int32, device=x.device)
        self.context.kernels.qsgd.scales(x, self.rows.table, True, bits)
        return quotient(bits.view(torch.float32), self.context.world)

    def cut_points(self) -> list[int]:
        return cut_points(spec.numel for spec in self.out.specs)

    def prepare(self, shared: Tensor) -> None:
        if self.normalizes:
            self.factors = shared / self.rows.roots.to(shared.device)
            some = self.factors > 0  # false of NaN: what is not finite is NaN by its factor
            self.divisors = torch.where(some, (1 / self.factors).clamp(max=_LARGEST), 0.0)

    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        table, keys = self.runs(first, last)
        self.context.kernels.hadamard.forward(x, table, keys, self.divisors, self.size, y)

    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        table, keys = self.runs(first, last)
        self.context.kernels.hadamard.inverse(y, table, keys, self.factors, self.size, x)

    def runs(self, first: int, last: int) -> tuple[Tensor, Tensor]:
        """The numbers first..last as kernels take them, and their keys."""
        if (first, last) not in self._tables:
            self._tables[first, last] = self._table(self.layout.pieces(first, last))
        table, names = self._tables[first, last]
        words = [word for name in names for word in self.key.words(name)]
        return table, int_words(words, self.context.tables)

    def _table(self, pieces: tuple[Piece, ...]) -> tuple[Tensor, list[str]]:
        scales = {s.name: s.scale for s in self.rows.segments}
        runs, target = [], 0
        for piece in pieces:
            runs.append([piece.offset, piece.count, target, scales[piece.name], self.block, piece.start])
            target += piece.count
        return self.context.table(runs), [piece.name for piece in pieces]

"""The lowrank stage: gradient matrices as products of two thin ones (PowerSGD)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import Context
from thinwire.codecs.floats import Dense
from thinwire.codecs.stage import NOTHING, BoundIdentity, BoundStage, Learned, LinearStage, near_one
from thinwire.devices import FINITE, StepVerdict
from thinwire.errors import CodecError
from thinwire.kernels.reference.hashing import counters, random24
from thinwire.tensors import Key, Layout, Spec
from thinwire.texts import START_RULE, check_start, option

DENSE, LOW_RANK = "dense", "lowrank"


@dataclass(frozen=True)
class PowerSGD(LinearStage):
    """A step of power iteration in every training step; M_i is the gradient of worker i, shape[0] rows:

    1. P = sum_i M_i Q                      agreed on, then orthonormalised: the same bits on all ranks
    2. Y_i^T = P^T M_i                      sent; payloads add as plain floats
    3. the mean is P Y^T with Y = mean_i Y_i, and Q = Y starts the next step (warm start)

    The first Q is random and follows from the tensor's name. What a worker's own P Y_i^T does not hold is
    kept back (feedback "residual"). Products and orthonormalising add in one order (kernels/products): every
    rank has the same P and the same mean, whatever its CPU and its threads. `start`: steps that travel
    uncompressed before. `min_ratio`: matrices that do not shrink that much stay dense.

    Vogels et al., "PowerSGD", NeurIPS 2019.
    """

    feedback = "residual"
    learns = True
    default_coder = Dense()

    rank: int = option(4, int, "a number of columns, at least 1")
    min_ratio: float = option(2.0, float, "a number of at least 1", repr)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise CodecError(f"powersgd: rank={self.rank} must be at least 1")
        if not self.min_ratio >= 1:
            raise CodecError(
                f"powersgd: min_ratio={self.min_ratio:g} must be at least 1, or tensors would grow"
            )
        check_start("powersgd", self.start)

    def phase(self, step: int, known: Mapping[str, Tensor] = NOTHING) -> str:
        return DENSE if step < self.start else LOW_RANK

    def refuses(self, spec: Spec) -> str | None:
        if len(spec.shape) < 2 or spec.numel == 0:
            return "no matrix"
        rows, columns = _matrix_shape(spec)
        if self.rank >= min(rows, columns):
            return f"rank {self.rank} is not below that of a {rows} x {columns} matrix"
        ratio = rows * columns / (self.rank * (rows + columns))
        if ratio < self.min_ratio:
            return f"shrinks only {ratio:.2f}x at rank {self.rank} (min_ratio={self.min_ratio:g})"
        return None

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundIdentity(layout) if phase == DENSE else BoundLowRank(self, layout, context, learned)


class BoundLowRank(BoundStage):
    """P (rows x rank, orthonormal) of the step at hand for every tensor; Q^T (rank x columns) is learnt.

    Y and Q are kept transposed: P^T M reads M once, as it lies.
    """

    def __init__(self, stage: PowerSGD, layout: Layout, context: Context, learned: Learned) -> None:
        self.stage, self.layout, self.learned = stage, layout, learned
        self.kernels = context.kernels.products
        self.shapes = [_matrix_shape(spec) for spec in layout.specs]
        self.sizes = [rows * stage.rank for rows, _ in self.shapes]
        self.num_summands = sum(self.sizes)
        self.out = Layout.packed(
            Spec(spec.name, (stage.rank, columns))
            for spec, (_, columns) in zip(layout.specs, self.shapes, strict=True)
        )
        self.left: list[Tensor] = []

    def summands(self, x: Tensor) -> Tensor:
        offer = x.new_empty(self.num_summands)
        for index, own in enumerate(self._lefts(offer)):
            right = self._right(index, x.device)
            self.kernels.product(self._matrix(x, index), right.t(), x.new_empty(0), own)
        return offer

    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        self.left = self._lefts(shared.clone())
        y = x.new_empty(self.out.numel)
        for index, left in enumerate(self.left):
            self.kernels.orthonormal(left)
            self.kernels.product(left.t(), self._matrix(x, index), x.new_empty(0), self._thin(y, index))
        return y

    def inverse(self, y: Tensor, x: Tensor) -> None:
        for index, left in enumerate(self.left):
            self.kernels.product(left, self._thin(y, index), x.new_empty(0), self._matrix(x, index))

    def learn(self, y: Tensor, x: Tensor, verdict: StepVerdict = FINITE) -> None:
        """Q = Y; a direction that vanished stays as it was, or it would be zero for ever.

        Y is brought near 1 by a power of two, which changes no bit of the next P once that is orthonormal:
        the product of two tiny or two huge numbers would be 0 or infinite.
        """
        for index, name in enumerate(self.layout.names):
            new, old = self._thin(y, index), self._right(index, y.device)
            gone = (new == 0).all(1, keepdim=True)
            right = torch.where(gone, old, near_one(new))
            self.learned.setdefault(name, {})["right"] = verdict.select(right, old)

    def _lefts(self, values: Tensor) -> list[Tensor]:
        """Every tensor's P in what is offered or shared."""
        return [own.view(-1, self.stage.rank) for own in torch.split(values, self.sizes)]

    def _matrix(self, x: Tensor, index: int) -> Tensor:
        return x[self.layout.slices[index]].view(self.shapes[index])

    def _thin(self, y: Tensor, index: int) -> Tensor:
        return y[self.out.slices[index]].view(self.stage.rank, -1)

    def _right(self, index: int, device: torch.device) -> Tensor:
        name = self.layout.names[index]
        known = self.learned.get(name, NOTHING).get("right")
        if known is not None:
            return known
        return first_right(name, self.stage.rank, self.shapes[index][1], device)


def _matrix_shape(spec: Spec) -> tuple[int, int]:
    rows = spec.shape[0]
    return rows, spec.numel // rows


def first_right(name: str, rows: int, columns: int, device: torch.device) -> Tensor:
    """Q^T before anything was learnt: uniform in [-1, 1), from the tensor's name alone."""
    k0, k1 = Key(seed=0, step=0, rank=0).words(name)
    bits = random24(counters(0, rows * columns, device), k0, k1)
    return (bits.to(torch.float32) * 2.0**-23 - 1.0).view(rows, columns)

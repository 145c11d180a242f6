"""A rotation and its coder at once: values go from one to the other in a core's cache."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import Packer
from thinwire.codecs.levels import NEAREST, SharedPacker
from thinwire.codecs.qsgd import QsgdLevels
from thinwire.codecs.rotate import BoundRotation
from thinwire.codecs.stage import RangedStage
from thinwire.codecs.terngrad import TernaryLevels
from thinwire.kernels.base import TurnedKernels


@dataclass(frozen=True)
class Turned:
    """The numbers first..last of a rotation, rounded to the nearest of levels at a fixed distance.

    The bits of the rotation's `forward_range` and the packer's `encode`, and of `decode` and `inverse_range`.
    """

    kernels: TurnedKernels
    rotation: BoundRotation
    packer: SharedPacker
    first: int
    last: int

    def encode(self, x: Tensor, payload: Tensor) -> None:
        levels, rotation = self.packer.levels, self.rotation
        runs, keys = rotation.runs(self.first, self.last)
        turned = x, runs, keys, rotation.divisors, rotation.size
        steps, table = self.packer.own_steps, levels.rows.table
        if isinstance(levels, TernaryLevels):
            self.kernels.encode_ternary(*turned, table, steps, levels.limits, levels.digits, payload)
        elif isinstance(levels, QsgdLevels):
            self.kernels.encode_qsgd(*turned, table, steps, levels.coder.bits, payload)

    def decode(self, sums: Tensor, x: Tensor) -> None:
        packer, rotation = self.packer, self.rotation
        runs, keys = rotation.runs(self.first, self.last)
        rows_per_shard = -(-packer.num_granules // sums.shape[0]) * packer.rows.granule_rows
        self.kernels.decode_sum(
            sums.reshape(-1).view(torch.int32),
            sums.shape[0],
            rows_per_shard,
            packer.zero,
            packer.sum_digits,
            packer.rows.table,
            packer.sum_steps,
            runs,
            keys,
            rotation.factors,
            rotation.size,
            x,
        )


def turned(stage: RangedStage, packer: Packer, first: int, last: int) -> Turned | None:
    """Both at once, if the kernels can do that for this stage and this packer."""
    if not isinstance(stage, BoundRotation) or not isinstance(packer, SharedPacker):
        return None
    kernels, levels = stage.context.kernels.turned, packer.levels
    if kernels is None or packer.max_words or not isinstance(levels, TernaryLevels | QsgdLevels):
        return None
    return Turned(kernels, stage, packer, first, last) if levels.coder.rounding == NEAREST else None

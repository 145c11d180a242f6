"""Rotated levels: the chain of a rotation and a coder that rounds to the nearest, called "rotated"."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from thinwire.codecs.coder import ChainLink
from thinwire.codecs.levels import NEAREST
from thinwire.codecs.qsgd import QSGD
from thinwire.codecs.rotate import BLOCK, MAX_BLOCK, Rotate
from thinwire.codecs.stage import Chain
from thinwire.codecs.terngrad import TernGrad
from thinwire.errors import CodecError
from thinwire.kernels.sizes import ROW
from thinwire.texts import option, show_yes_or_no, yes_or_no

# The distance between levels that errs least on a Gaussian, in standard deviations: by number of levels.
STEPS: Mapping[int, float] = MappingProxyType({3: 1.224, 7: 0.6508, 15: 0.3534})


@dataclass(frozen=True)
class Rotated(Chain):
    """A few levels, rotated, rounded to the nearest, nothing held back:

    rotated:3  =  rotate:512 >> ternary:step=1.224,rounding=nearest,block=512
    rotated:7  =  rotate:512 >> qsgd:3,step=0.6508,rounding=nearest

    |Q(x) - x|^2 / |x|^2 is 0.235 with 3 levels, 0.049 with 7 and 0.014 with 15; the nearest level is biased
    towards 0 by a gain that is known and divided out. For Adam as well as SGD.
    """

    levels: int = option(3, int, "3, 7 or 15")
    block: int = option(BLOCK, int, f"a power of two from {ROW} to {MAX_BLOCK}")
    unbiased: bool = option(True, yes_or_no, '"on" or "off"', show_yes_or_no)

    def __post_init__(self) -> None:
        if self.levels not in STEPS:
            raise CodecError(f"rotated: levels={self.levels} must be 3, 7 or 15, as in rotated:3")
        Rotate(self.block)

    @property
    def short_for(self) -> tuple[ChainLink, ...]:
        """A rotation, and the coder of its levels."""
        step, rotation = STEPS[self.levels], Rotate(self.block)
        if self.levels == 3:
            return rotation, TernGrad(
                math.inf, block=self.block, rounding=NEAREST, step=step, unbiased=self.unbiased
            )
        bits = self.levels.bit_length()
        return rotation, QSGD(bits, self.block, rounding=NEAREST, step=step, unbiased=self.unbiased)

"""Deep gradient compression: top-k that begins gently, with momentum corrected on every worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from thinwire.codecs.coders.base import Coder, Context, Packer
from thinwire.codecs.coders.floats import Dense
from thinwire.codecs.coders.gather import UNIT
from thinwire.codecs.stages.base import NOTHING, SelectingStage
from thinwire.codecs.stages.topk import TopK
from thinwire.errors import CodecError
from thinwire.tensors.layout import Layout
from thinwire.texts.options import START_RULE, check_start, option, read_chunk, show_chunk

WARM_UP_RATIOS = (0.25, 0.063, 0.015, 0.004, 0.001)


@dataclass(frozen=True)
class DGC(SelectingStage):
    """Top-k of the accumulated, momentum-corrected gradient (memory "momentum"):

    1. in the first `warmup` steps, in five equal parts, .25 .063 .015 .004 .001 of the elements are kept, but
       never less than `ratio`; then `ratio` of them
    2. before all that, `start` steps travel uncompressed; nothing is masked then
    3. the rest is top-k; the memory corrects momentum, masks and clips: memory="momentum:0.9,clip=1"

    The optimizer must not apply momentum again: see `Compressor.check_optimizer`. The paper warms up for 5
    epochs (of about 90). Lin et al., "Deep Gradient Compression", ICLR 2018.
    """

    memory = "momentum"
    default_coder = Dense()

    ratio: float = option(0.001, float, "a part of the elements, more than 0 and at most 1", repr)
    warmup: int = option(
        1000, int, 'a number of steps, 0 for none, or a part of the run as in "5%"', of_run=True
    )
    chunk: int = option(UNIT, read_chunk, '"tensor", or a number of elements', show_chunk)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise CodecError(
                f"dgc: ratio={self.ratio:g}, the part that is kept, must be above 0 and at most 1"
            )
        if self.warmup < 0:
            raise CodecError(f"dgc: warmup={self.warmup} must be a number of steps, 0 for none")
        if self.chunk < 0:
            raise CodecError(f"dgc: chunk={self.chunk} must be a number of elements, or tensor")
        check_start("dgc", self.start)

    @property
    def dense_steps(self) -> int:
        return self.start

    @property
    def theta(self) -> float:
        return 1 - self.ratio

    def at_strength(self, strength: float) -> DGC:
        """Drops `strength` of what it drops now, as top-k does; the warm-up stays."""
        return self if strength >= 1 else dataclasses.replace(self, ratio=1 - strength * self.theta)

    def phase(self, step: int, known: Mapping[str, Tensor] = NOTHING) -> str:
        """The ratio of this step.

        >>> [DGC(warmup=10).phase(step) for step in (0, 1, 2, 9, 10)]
        ['0.25', '0.25', '0.063', '0.001', '0.001']
        """
        warm = max(0, step - self.start)
        if warm >= self.warmup:
            return repr(self.ratio)
        return repr(max(self.ratio, WARM_UP_RATIOS[warm * len(WARM_UP_RATIOS) // self.warmup]))

    def check(self, coder: Coder) -> None:
        TopK(self.ratio).check(coder)

    def bind(self, coder: Coder, layout: Layout, context: Context, phase: str) -> Packer:
        return TopK(ratio=float(phase), chunk=self.chunk).bind(coder, layout, context, phase)

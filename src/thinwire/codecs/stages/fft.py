"""FFT sparsification: the chain of fourier and topk that is called "fft"."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.codecs.coders.gather import unit_size
from thinwire.codecs.coders.rangefloat import RangeFloat
from thinwire.codecs.link import ChainLink
from thinwire.codecs.stages.base import Chain
from thinwire.codecs.stages.fourier import Fourier
from thinwire.codecs.stages.topk import TopK
from thinwire.codecs.stages.transform import CHUNK, CHUNK_RULE, check_chunk
from thinwire.errors import CodecError
from thinwire.texts.options import START_RULE, check_start, option, read_chunk, show_chunk


@dataclass(frozen=True)
class FFT(Chain):
    """Of all frequencies of a tensor floor(theta * frequencies), those of least energy, are dropped:

    fourier:chunk=CHUNK >> topk:drop=THETA      chosen among the chunks of about a million elements

    ||g - Q(g)||^2 <= theta ||g||^2 always, and Q is an orthogonal projection. Its numbers are packed by
    "rangefloat:10", as in the paper, or by another coder of floats: "fft:0.85 >> fp16". `start`: steps in
    which all frequencies travel, as float32.

    Wang et al., "FFT-based Gradient Sparsification for the Distributed Training of Deep Neural Networks",
    HPDC 2020.
    """

    default_coder = RangeFloat(bits=10)

    theta: float = option(0.85, float, "a part of the frequencies, from 0 to less than 1", repr)
    chunk: int = option(CHUNK, read_chunk, CHUNK_RULE, show_chunk)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if not 0 <= self.theta < 1:
            raise CodecError(
                f"fft: theta={self.theta:g}, the part of the frequencies that is dropped, must be at least 0 "
                "and less than 1; 0 drops nothing"
            )
        check_chunk("fft", self.chunk)
        check_start("fft", self.start)

    @property
    def short_for(self) -> tuple[ChainLink, ...]:
        """Frequencies, of which the strongest are kept."""
        return Fourier(self.chunk), TopK(drop=self.theta, chunk=unit_size(self.chunk), start=self.start)

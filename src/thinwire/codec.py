"""A codec: stages, then a coder. How payloads merge follows from the links, it is never declared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.coders.base import Coder, Merge, Place
from thinwire.options import show_options
from thinwire.spec import Layout
from thinwire.stages.base import Stage


@dataclass(frozen=True)
class Codec:
    """A chain of links under the name it was asked for.

    The algebra: links from the first one whose decoding needs per-rank data are decoded payload by payload;
    links before it are linear and are decoded once, on the sum. So

    - nothing per-rank and a coder that adds as floats: SUM,
    - nothing per-rank and a shared-scale integer coder: INT,
    - anything else: GATHER.
    """

    name: str
    stages: tuple[Stage, ...]
    coder: Coder

    @property
    def merge(self) -> Merge:
        return Merge.GATHER if any(stage.per_rank for stage in self.stages) else self.coder.merge

    @property
    def shardable(self) -> bool:
        return self.coder.shardable

    @property
    def own_dtype(self) -> bool:
        return self.coder.own_dtype and not self.stages

    @property
    def gentle(self) -> bool:
        """True if no tensor needs to be kept dense beside it."""
        return self.coder.gentle and not self.stages

    def bind(self, layout: Layout, place: Place) -> BoundCodec:
        return BoundCodec(self, layout, place)

    def __str__(self) -> str:
        return self.name

    @property
    def canonical(self) -> str:
        """Every link with every option that is not its default: equal texts mean equal bytes on the wire."""
        links = (*self.stages, self.coder)
        return " >> ".join(f"{type(link).__name__}({show_options(link)})" for link in links)


class BoundCodec:
    """A codec bound to the tensors of a lane; the same steps as a Packer, stages included."""

    def __init__(self, codec: Codec, layout: Layout, place: Place) -> None:
        self.codec, self.layout, self.place = codec, layout, place
        self.stages = []
        inner = layout
        for stage in codec.stages:
            bound = stage.bind(inner, place)
            self.stages.append(bound)
            inner = bound.out
        self.packer = codec.coder.bind(inner, place)
        self.inner_numel = inner.numel

    def transform(self, x: Tensor) -> Tensor:
        """What the coder sees."""
        for stage in self.stages:
            x = stage.forward(x)
        return x

    def offer(self, y: Tensor) -> Tensor:
        """The words that must be agreed on (maximised) before `encode`."""
        words = torch.zeros(self.packer.agree_words, dtype=torch.int32, device=y.device)
        self.packer.offer(y, words)
        return words

    def numbers(self, x: Tensor) -> Tensor:
        """Where decoded numbers go before `finish`: x itself if there are no stages."""
        return x.new_empty(self.inner_numel) if self.stages else x

    def finish(self, y: Tensor, x: Tensor) -> None:
        """Decoded numbers, as the coder sees them, to the tensors of x."""
        if self.stages:
            self._invert(y, x)

    def _invert(self, y: Tensor, x: Tensor) -> None:
        for before, stage in reversed(list(zip(self.stages, self.stages[1:], strict=False))):
            outer = y.new_empty(before.out.numel)
            stage.inverse(y, outer)
            y = outer
        self.stages[0].inverse(y, x)

"""A codec bound to the tensors of a lane: stages and packer with all their tables, in one phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Context, Packer
from thinwire.codecs.stages.base import BoundStage, RangedStage
from thinwire.tensors.layout import Layout


@dataclass(frozen=True, eq=False)
class BoundCodec:
    """`layout` is how the gradients lie, `inner` how the numbers lie that the packer sees."""

    layout: Layout
    context: Context
    stages: Sequence[BoundStage]
    inner: Layout
    packer: Packer
    phase: str
    fixed: bool  # whether the stages never change, so that memories may live behind them

    @cached_property
    def ranged(self) -> RangedStage | None:
        """The only stage, if it can be run part by part and the packer need not see all numbers first."""
        fed_by_parts = self.packer.cut_points() != () and not self.packer.max_words
        return self.stages[0].by_parts if len(self.stages) == 1 and fed_by_parts else None

    @property
    def num_summands(self) -> int:
        """Numbers that its stages add up over all ranks before encoding."""
        return sum(stage.num_summands for stage in self.stages)

    def maxima(self, y: Tensor) -> Tensor:
        """The words of which all ranks take the maximum before encoding."""
        words = torch.zeros(self.packer.max_words, dtype=torch.int32, device=y.device)
        self.packer.maxima(y, words)
        return words

    def numbers(self, x: Tensor) -> Tensor:
        """Where decoded numbers go before `finish`: x itself if there are no stages."""
        return x.new_empty(self.inner.numel) if self.stages else x

    def finish(self, y: Tensor, x: Tensor) -> Tensor:
        """Decoded numbers, as the packer sees them, to the tensors of x; gives what the first stage sees."""
        for before, stage in reversed(list(zip(self.stages, self.stages[1:], strict=False))):
            outer = y.new_empty(before.out.numel)
            stage.inverse(y, outer)
            y = outer
        if self.stages:
            self.stages[0].inverse(y, x)
        return y

    def begin(self, loss_scale: float, measured: bool) -> None:
        """Tells the stages the loss scale of the gradients, and whether their exchange is measured."""
        for stage in self.stages:
            stage.loss_scale, stage.measured = loss_scale, measured

    def tallies(self) -> dict[str, dict[str, float]]:
        """What its stages counted in an exchange that was measured, by tensor and by name."""
        found: dict[str, dict[str, float]] = {}
        for stage in self.stages:
            for name, numbers in stage.tallies().items():
                found.setdefault(name, {}).update(numbers)
        return found

    def learn(self, y: Tensor, x: Tensor) -> None:
        """Shows the mean to the first stage: bases and samples come from the REDUCED result."""
        if self.stages:
            self.stages[0].learn(y, x)

"""Numbers that are all made before the first part is encoded: no stages, or stages that need it."""

from __future__ import annotations

from torch import Tensor

from thinwire.exchange.numbers import Load, Numbers, PartNumbers
from thinwire.plans.lane import base_of


class WholeNumbers(Numbers):
    """Stage after stage over all numbers; without stages the numbers are the gradients themselves."""

    def __init__(self, load: Load) -> None:
        self.load, self.bound, self.tensor = load, load.lane.bound, load.x

    def summands(self, depth: int) -> Tensor:
        return self.bound.stages[depth].summands(self.tensor)

    def transform(self, depth: int, agreed: Tensor) -> None:
        self.tensor = self.bound.stages[depth].forward(self.tensor, agreed)

    def maxima(self) -> Tensor:
        if self.load.feeds_numbers:
            self.load.feedback.join(self.tensor, self.bound.inner.pieces())
        return self.bound.maxima(self.tensor)

    def parts(self) -> list[WholePart]:
        return [WholePart(self.load, self.tensor, number) for number in range(len(self.load.lane.parts))]

    def finish(self) -> None:
        if self.bound.stages:
            self.tensor = self.bound.finish(self.tensor, self.load.x)

    def learn(self, mean: Tensor) -> None:
        self.bound.learn(self.tensor, mean)


class WholePart(PartNumbers):
    """A part of numbers that are there already."""

    def __init__(self, load: Load, tensor: Tensor, number: int) -> None:
        self.load, self.tensor, self.number = load, tensor, number
        self.part = load.lane.parts[number]
        self.pieces = load.lane.part_pieces[number]

    def make(self) -> None:
        pass

    def undo(self) -> None:
        pass

    def own(self, payload: Tensor, agreed: Tensor) -> tuple[Tensor, int]:
        base, end = base_of(self.pieces), max((piece.where.stop for piece in self.pieces), default=0)
        own = self.load.take("own", end - base)
        self.load.lane.own_packers[self.number].decode_own(payload, agreed, own)
        return own, base

    def add_own_gradients(self, payload: Tensor, agreed: Tensor, own: Tensor) -> None:
        bound = self.load.lane.bound
        numbers = self.load.take("own", bound.inner.numel)
        self.part.packer.decode_own(payload, agreed, numbers)
        if self.number == len(self.load.lane.parts) - 1:
            bound.finish(numbers, own)

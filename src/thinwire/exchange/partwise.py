"""Numbers of one stage that works on ranges: a part's are made while the part before it travels."""

from __future__ import annotations

from torch import Tensor

from thinwire.codecs.stages.base import RangedStage
from thinwire.exchange.numbers import Load, Numbers, PartNumbers


class PartwiseNumbers(Numbers):
    """There and back part by part; the packer of such a lane agrees on nothing."""

    def __init__(self, load: Load, stage: RangedStage) -> None:
        self.load, self.stage = load, stage

    def summands(self, depth: int) -> Tensor:
        return self.stage.summands(self.load.x)

    def transform(self, depth: int, agreed: Tensor) -> None:
        self.stage.prepare(agreed)

    def maxima(self) -> Tensor:
        return self.load.lane.bound.maxima(self.load.x)

    def parts(self) -> list[PartwisePart]:
        return [PartwisePart(self.load, self.stage, number) for number in range(len(self.load.lane.parts))]

    def finish(self) -> None:
        pass

    def learn(self, mean: Tensor) -> None:
        self.stage.learn(mean, mean)


class PartwisePart(PartNumbers):
    """A part with numbers of its own."""

    def __init__(self, load: Load, stage: RangedStage, number: int) -> None:
        self.load, self.stage, self.part = load, stage, load.lane.parts[number]
        # where sums arrive in place the numbers are the payload, and several are under way
        room = f"numbers {load.index}.{number}" if load.lane.route.in_place else f"numbers {load.index}"
        self.tensor = load.take(room, self.part.last - self.part.first)
        self.pieces = load.lane.part_pieces[number]

    def make(self) -> None:
        self.stage.forward_range(self.load.x, self.tensor, self.part.first, self.part.last)
        if self.load.feeds_numbers:
            self.load.feedback.join(self.tensor, self.pieces)

    def undo(self) -> None:
        self.stage.inverse_range(self.tensor, self.load.x, self.part.first, self.part.last)

    def own(self, payload: Tensor, agreed: Tensor) -> tuple[Tensor, int]:
        own = self.load.take("own", self.part.last - self.part.first)
        self.part.packer.decode_own(payload, agreed, own)
        return own, 0

    def add_own_gradients(self, payload: Tensor, agreed: Tensor, own: Tensor) -> None:
        numbers, _ = self.own(payload, agreed)
        self.stage.inverse_range(numbers, own, self.part.first, self.part.last)

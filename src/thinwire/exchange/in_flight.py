"""A lane in the middle of an exchange: its numbers, what was agreed on, and its parts on their way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import Part
from thinwire.codecs.stage import RangedStage
from thinwire.exchange.statistics import Statistics
from thinwire.feedback.base import Memory, is_finite
from thinwire.plans.lane import Lane, base_of
from thinwire.tensors import Key, Piece, Scratch


@dataclass(frozen=True)
class Feedback:
    """A lane's memory under the loss scale of its bucket, and the statistics if this step is measured.

    `strength` is that of the lane's codec, 0 in a dense start.
    """

    memory: Memory
    loss_scale: float
    statistics: Statistics | None
    strength: float = 1.0

    @property
    def wanted(self) -> bool:
        """Whether anybody asks what the payloads do not carry."""
        return bool(self.memory.pieces_held) or self.statistics is not None

    def join(self, x: Tensor, pieces: Sequence[Piece]) -> None:
        """What was held back joins these pieces of x, in place."""
        self.memory.before(x, pieces, self.loss_scale)

    def keep(self, meant: Tensor, sent: Tensor, base: int, pieces: Sequence[Piece]) -> None:
        """kept = meant - sent; `sent` begins at element `base` of what was meant."""
        self.memory.strength = self.strength
        self.memory.after(meant, sent, base, pieces, self.loss_scale)
        if self.statistics is not None:
            self.statistics.add_error(meant, sent, base, pieces)

    def receive(self, mean: Tensor, pieces: Sequence[Piece]) -> None:
        """The mean over all ranks, which some memories complete."""
        self.memory.received(mean, pieces, self.loss_scale)


@dataclass(frozen=True)
class Load:
    """A lane of a bucket in one step: its gradients, and all that the engine knows of the step."""

    lane: Lane
    x: Tensor  # the gradients; at the end their mean
    index: int  # of the lane in its bucket: lanes have buffers of their own
    feedback: Feedback
    key: Key
    scratch: Scratch
    watched: bool  # whether anybody wants to know if the mean is finite

    @property
    def feeds_numbers(self) -> bool:
        """What is held back joins the numbers if the stages never change (or there are none), else x."""
        return self.lane.bound.fixed

    def take(self, name: str, numel: int) -> Tensor:
        return self.scratch.take(name, 4 * numel).view(torch.float32)


class PartNumbers(ABC):
    """The numbers of one part, in a buffer that may hold others too: `pieces` says where they lie."""

    tensor: Tensor
    pieces: tuple[Piece, ...]

    @abstractmethod
    def make(self) -> None:
        """Fills them, with what was held back of them."""

    @abstractmethod
    def undo(self) -> None:
        """Decoded numbers to gradients, now or when all parts are there."""

    @abstractmethod
    def own(self, payload: Tensor, agreed: Tensor) -> tuple[Tensor, int]:
        """What a payload stands for, and the element of `tensor` at which that begins."""

    @abstractmethod
    def add_own_gradients(self, payload: Tensor, agreed: Tensor, own: Tensor) -> None:
        """Writes what a payload stands for into the gradients `own`, at the latest with the last part."""


class Numbers(ABC):
    """The numbers of a lane. Made all at once (`whole.py`), or part by part (`partwise.py`)."""

    @abstractmethod
    def summands(self, depth: int) -> Tensor:
        """What stage number `depth` adds up over all ranks before it runs."""

    @abstractmethod
    def transform(self, depth: int, agreed: Tensor) -> None:
        """Runs stage number `depth`."""

    @abstractmethod
    def maxima(self) -> Tensor:
        """The words of which all ranks take the maximum before encoding."""

    @abstractmethod
    def parts(self) -> Sequence[PartNumbers]:
        """Those of every part of the lane."""

    @abstractmethod
    def finish(self) -> None:
        """All parts are decoded: x becomes the mean."""

    @abstractmethod
    def learn(self, mean: Tensor) -> None:
        """Shows the mean to the stages."""


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


class Transit:
    """One lane of one bucket, from its gradients to their mean."""

    def __init__(self, load: Load) -> None:
        self.load, self.lane, self.feedback = load, load.lane, load.feedback
        self.agreed: Tensor  # the words that packers encode under
        self.finite = True
        self.own: Tensor | None = None  # what the payloads stand for, as gradients
        self.lane.bound.begin(self.feedback.loss_scale, self.feedback.statistics is not None)
        if not load.feeds_numbers:
            self.feedback.join(load.x, self.lane.layout.pieces())
        stage = self.lane.bound.ranged
        self.numbers: Numbers = WholeNumbers(load) if stage is None else PartwiseNumbers(load, stage)

    @property
    def num_stages(self) -> int:
        return len(self.lane.bound.stages)

    def parcels(self, world: int) -> list[Parcel]:
        """Its parts, ready to be encoded under what was agreed."""
        both = zip(self.lane.parts, self.numbers.parts(), strict=True)
        return [Parcel(self, number, part, numbers, world) for number, (part, numbers) in enumerate(both)]

    def finish(self) -> None:
        """All parts are decoded: the gradients become the mean."""
        self.numbers.finish()
        if not self.load.feeds_numbers:
            self.feedback.receive(self.load.x, self.lane.layout.pieces())

    def own_gradients(self) -> Tensor:
        """Room for what the payloads stand for, as gradients."""
        if self.own is None:
            x = self.load.x
            self.own = self.load.scratch.take("own gradients", x.nbytes).view(x.dtype)
        return self.own


class Parcel:
    """A part of a lane on its way: encoded, sent, kept (while it travels), decoded."""

    def __init__(self, transit: Transit, number: int, part: Part, numbers: PartNumbers, world: int) -> None:
        self.transit, self.packer, self.numbers = transit, part.packer, numbers
        self.agreed = transit.agreed
        self.is_last = number == len(transit.lane.parts) - 1
        route, load = transit.lane.route, transit.load
        in_place = route.in_place and not transit.feedback.wanted
        payload = self.packer.in_place(numbers.tensor) if in_place else None
        if payload is None:
            nbytes = route.payload_bytes(self.packer, world)
            payload = load.scratch.take(f"payload {load.index}.{number}", nbytes)
        self.payload = payload

    def encode(self) -> None:
        """payload = encode(numbers); padding is zero."""
        self.numbers.make()
        self.payload[self.packer.payload_bytes :] = 0
        self.packer.encode(self.numbers.tensor, self.agreed, self.transit.load.key, self.payload)

    def keep(self) -> None:
        """kept = x - decode_own(payload), of numbers or of gradients."""
        transit, feedback = self.transit, self.transit.feedback
        if not feedback.wanted:
            return
        if transit.load.feeds_numbers:
            own, base = self.numbers.own(self.payload, self.agreed)
            feedback.keep(self.numbers.tensor, own, base, self.numbers.pieces)
        else:
            self.numbers.add_own_gradients(self.payload, self.agreed, transit.own_gradients())
            if self.is_last:
                feedback.keep(transit.load.x, transit.own_gradients(), 0, transit.lane.layout.pieces())
        if feedback.statistics is not None:
            feedback.statistics.add_tallies(self.packer.tallies())
            feedback.statistics.add_tallies(transit.lane.bound.tallies())

    def decode(self, sums: Tensor) -> None:
        """Merged payloads (or, if they do not merge, those of all ranks) to the mean."""
        transit, numbers = self.transit, self.numbers
        self.packer.decode(sums, self.agreed, numbers.tensor)
        if transit.load.watched:
            transit.finite &= all(is_finite(numbers.tensor[run]) for run in _runs(numbers.pieces))
        if transit.load.feeds_numbers:
            transit.feedback.receive(numbers.tensor, numbers.pieces)
        numbers.undo()


def _runs(pieces: Sequence[Piece]) -> list[slice]:
    """The pieces as few slices: those that follow each other are one."""
    runs: list[slice] = []
    for piece in pieces:
        if runs and runs[-1].stop == piece.offset:
            runs[-1] = slice(runs[-1].start, piece.where.stop)
        else:
            runs.append(piece.where)
    return runs

"""A lane in the middle of an exchange: its numbers, what was agreed on, and its parts on their way."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from thinwire.codecs.coders.base import Part
from thinwire.exchange.numbers import Load, Numbers, PartNumbers
from thinwire.exchange.partwise import PartwiseNumbers
from thinwire.exchange.whole import WholeNumbers
from thinwire.memories.base import is_finite
from thinwire.tensors.layout import Piece


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

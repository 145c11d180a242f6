"""A lane in the middle of an exchange: its numbers, what was agreed on, and its parts on their way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from thinwire.coders.base import Part
from thinwire.key import Key
from thinwire.lane import Lane, base_of
from thinwire.memory import Memory, is_finite
from thinwire.scratch import Scratch
from thinwire.spec import Piece
from thinwire.stages.base import BoundStage
from thinwire.statistics import Statistics


@dataclass
class Transit:
    """One lane of one bucket. Numbers are what the coder sees: gradients, or what the stages make of them.

    What is held back joins the numbers if the stages never change (or there are none), else the gradients.
    """

    lane: Lane
    index: int  # of the lane in its bucket: lanes have buffers of their own
    x: Tensor  # the gradients; at the end their mean
    memory: Memory
    unit: float
    key: Key
    scratch: Scratch
    statistics: Statistics | None  # None: this step is not measured
    watched: bool  # whether anybody wants to know if the mean is finite
    numbers: Tensor = field(init=False)
    agreed: Tensor = field(init=False)
    finite: bool = field(default=True, init=False)
    own: Tensor | None = field(default=None, init=False)  # what the payloads stand for, in place of x

    def __post_init__(self) -> None:
        self.numbers = self.x
        self.lane.bound.set_unit(self.unit)
        if not self.lane.bound.remembers_coordinates:
            self.memory.before(self.x, self.lane.layout.pieces(), self.unit)

    @property
    def keeps(self) -> bool:
        """Whether what the payloads do not carry is held back or measured."""
        return self.lane.memory != "none" or self.statistics is not None

    @property
    def stages(self) -> Sequence[BoundStage]:
        return self.lane.bound.stages

    def transform(self, stage: BoundStage, agreed: Tensor) -> None:
        """Runs a stage; one that works part by part makes each part's numbers when its turn comes."""
        ranged = self.lane.bound.ranged
        if ranged is None:
            self.numbers = stage.forward(self.numbers, agreed)
        else:
            ranged.prepare(agreed)

    def offer(self) -> Tensor:
        """The words that all ranks maximise before encoding."""
        bound = self.lane.bound
        if bound.ranged is None and bound.remembers_coordinates:
            self.memory.before(self.numbers, bound.inner.pieces(), self.unit)
        return bound.offer(self.numbers)

    def parcels(self, world: int) -> list[PartInTransit]:
        return [PartInTransit(self, number, part, world) for number, part in enumerate(self.lane.parts)]

    def finish(self) -> None:
        """Undoes stages that do not work part by part."""
        if self.stages and self.lane.bound.ranged is None:
            self.numbers = self.lane.bound.finish(self.numbers, self.x)

    def learn(self) -> None:
        self.lane.bound.learn(self.numbers, self.x)


class PartInTransit:
    """A part of a lane on its way (what routes call a parcel)."""

    def __init__(self, transit: Transit, number: int, part: Part, world: int) -> None:
        self.transit, self.number, self.part, self.packer = transit, number, part, part.packer
        lane, scratch = transit.lane, transit.scratch
        self.ranged, self.is_last = lane.bound.ranged, number == len(lane.parts) - 1
        shared = not lane.route.in_place  # else the numbers are the payload, and several are under way
        self._room = f"numbers {transit.index}" if shared else f"numbers {transit.index}.{number}"
        self.numbers = transit.numbers if self.ranged is None else self._take_numbers(self._room)
        payload = self.packer.in_place(self.numbers) if lane.route.in_place and not transit.keeps else None
        if payload is None:
            nbytes = lane.route.payload_bytes(self.packer, world)
            payload = scratch.take(f"payload {transit.index}.{number}", nbytes)
        self.payload = payload

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Where its numbers lie in `numbers`, tensor by tensor."""
        layout, (first, last) = self.transit.lane.bound.inner, (self.part.first, self.part.last)
        if self.ranged is None:
            return layout.pieces(first, last)
        return layout.moved(first).pieces(first, last)

    def encode(self) -> None:
        """Makes the numbers, what was held back joins them, and fills the payload; padding is zero."""
        transit = self.transit
        if self.ranged is not None:
            self.ranged.forward_range(transit.x, self.numbers, self.part.first, self.part.last)
            if transit.lane.bound.remembers_coordinates:
                transit.memory.before(self.numbers, self.pieces, transit.unit)
        self.payload[self.packer.num_granules * self.packer.granule_bytes :] = 0
        self.packer.encode(self.numbers, transit.agreed, transit.key, self.payload)

    def keep(self) -> None:
        """kept = x - decode_own(payload): staged, and measured now and then."""
        transit, bound = self.transit, self.transit.lane.bound
        if not transit.keeps:
            return
        if bound.remembers_coordinates:
            pieces = self.pieces
            self._hold(self.numbers, self._decode_own(pieces), base_of(pieces), pieces)
        else:
            self._decode_own_gradients()
            if self.is_last and transit.own is not None:
                self._hold(transit.x, transit.own, 0, transit.lane.layout.pieces())
        if transit.statistics is not None:
            transit.statistics.note_tallies(self.packer.tallies())

    def merge(self, payloads: Tensor, sums: Tensor) -> None:
        self.packer.merge(payloads, self.transit.agreed, sums)

    def decode(self, sums: Tensor) -> None:
        transit = self.transit
        self.packer.decode(sums, transit.agreed, self.numbers)
        if transit.watched:
            transit.finite &= all(is_finite(self.numbers[run]) for run in _runs(self.pieces))
        if self.ranged is not None:
            self.ranged.inverse_range(self.numbers, transit.x, self.part.first, self.part.last)

    def _hold(self, meant: Tensor, sent: Tensor, base: int, pieces: Sequence[Piece]) -> None:
        transit = self.transit
        transit.memory.after(meant, sent, base, pieces, transit.unit)
        if transit.statistics is not None:
            transit.statistics.note_error(meant, sent, base, pieces)

    def _decode_own(self, pieces: Sequence[Piece]) -> Tensor:
        """What the payload stands for, in a buffer that begins where the first of the pieces does."""
        end = max((piece.where.stop for piece in pieces), default=0)
        own = self.transit.scratch.take("own", 4 * (end - base_of(pieces))).view(torch.float32)
        packer = self.packer if self.ranged is not None else self.transit.lane.own_packers[self.number]
        packer.decode_own(self.payload, self.transit.agreed, own)
        return own

    def _decode_own_gradients(self) -> None:
        """The same as gradients: back through the stages, part by part or, with the last part, at once."""
        transit, bound = self.transit, self.transit.lane.bound
        if transit.own is None:
            transit.own = transit.scratch.take("own gradients", transit.x.nbytes).view(transit.x.dtype)
        if self.ranged is not None:
            own = self._take_numbers("own")
            self.packer.decode_own(self.payload, transit.agreed, own)
            self.ranged.inverse_range(own, transit.own, self.part.first, self.part.last)
            return
        own = transit.scratch.take("own", 4 * bound.inner.numel).view(torch.float32)
        self.packer.decode_own(self.payload, transit.agreed, own)
        if self.is_last:
            bound.finish(own, transit.own)

    def _take_numbers(self, name: str) -> Tensor:
        numel = self.part.last - self.part.first
        return self.transit.scratch.take(name, 4 * numel).view(torch.float32)


def _runs(pieces: Sequence[Piece]) -> list[slice]:
    """The pieces as few slices: those that follow each other are one."""
    runs: list[slice] = []
    for piece in pieces:
        if runs and runs[-1].stop == piece.offset:
            runs[-1] = slice(runs[-1].start, piece.where.stop)
        else:
            runs.append(piece.where)
    return runs

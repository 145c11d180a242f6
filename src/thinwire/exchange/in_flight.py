"""A lane in flight: its values, the context all ranks share, and its chunks on their way."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.codecs.turned import turned
from thinwire.codecs.two_phase import TwoPhasePacker
from thinwire.devices import StepVerdict
from thinwire.exchange.statistics import Statistics
from thinwire.feedback.base import ErrorFeedback, Transmission
from thinwire.plans.lane import Lane, base_of
from thinwire.tensors import Key, Piece, Scratch


@dataclass(frozen=True)
class LaneFeedback:
    """A lane's error feedback under the loss scale of its bucket; statistics if this step is measured.

    `compression_level` is that of the lane's codec, 0 in a dense start.
    """

    error_feedback: ErrorFeedback
    loss_scale: float
    statistics: Statistics | None
    compression_level: float = 1.0
    owner: ErrorFeedback | None = None  # of what this rank encodes again, where it holds anything back

    def join(self, x: Tensor, pieces: Sequence[Piece]) -> None:
        """Adds what was held back to these pieces of x, in place."""
        self.error_feedback.before(x, pieces, self.loss_scale)

    def keep(self, meant: Tensor, sent: Tensor, base: int, pieces: Sequence[Piece]) -> None:
        """kept = meant - sent; `sent` begins at element `base` of what was meant."""
        self.error_feedback.after(
            Transmission(meant, sent, base, pieces, self.loss_scale, self.compression_level)
        )
        if self.statistics is not None:
            self.statistics.add_error(meant, sent, base, pieces)

    def receive(self, mean: Tensor, pieces: Sequence[Piece]) -> None:
        """Shows the mean over all ranks; some kinds of feedback complete it."""
        self.error_feedback.received(mean, pieces, self.loss_scale)

    def encode_again(self, mean: Tensor, packer: TwoPhasePacker, load: LaneStep, payload: Tensor) -> None:
        """Payload = Q(mean + residual), of what this rank owns; the owner's residual is what that leaves."""
        pieces, owned = packer.owned_pieces, packer.owned_mean
        if self.owner is not None:
            self.owner.before(mean, pieces, self.loss_scale)
        if owned.granule_bytes:
            owned.encode(mean, load.no_words, load.owner_key, payload)
        if self.owner is not None:
            sent = load.take("owned and sent", owned.layout.numel)
            owned.decode_local(payload, load.no_words, sent)
            self.owner.after(Transmission(mean, sent, 0, pieces, self.loss_scale))


@dataclass(frozen=True)
class LaneStep:
    """A lane of a bucket in one step: its gradients, and all that the engine knows of the step."""

    lane: Lane
    x: Tensor  # the gradients; at the end their mean
    index: int  # of the lane in its bucket: lanes have buffers of their own
    feedback: LaneFeedback
    key: Key
    scratch: Scratch
    see: Callable[[Tensor], None] | None  # shows means to who wants to know if they are finite

    @property
    def owner_key(self) -> Key:
        """What an owner encodes again is drawn by other random numbers than what any rank encoded."""
        return replace(self.key, rank=self.lane.context.world + self.key.rank)

    @property
    def no_words(self) -> Tensor:
        """The shared context of payloads that are gathered: empty."""
        return torch.empty(0, dtype=torch.int32, device=self.x.device)

    def take(self, name: str, numel: int) -> Tensor:
        return self.scratch.take(name, 4 * numel).view(torch.float32)


class InFlight:
    """One lane of one bucket, from its gradients to their mean: stage after stage over all its values.

    Without stages the values are the gradients themselves. What was held back joins the values if the stages
    never change (`bound.fixed`), else the gradients.
    """

    def __init__(self, load: LaneStep) -> None:
        self.load, self.lane, self.bound, self.values = load, load.lane, load.lane.bound, load.x
        self.feedback = load.feedback
        self.holds = bool(load.feedback.error_feedback.state_kinds)  # whether anything is ever held back
        self.shared: Tensor  # the words that all ranks encode under
        self.reconstruction: Tensor | None = None  # of the payloads, as gradients
        self.bound.begin(self.feedback.loss_scale, self.feedback.statistics is not None, load.key)
        if self.holds and not self.bound.fixed:
            self.feedback.join(load.x, self.lane.layout.pieces())

    def summands(self, depth: int) -> Tensor:
        """What stage number `depth` adds up over all ranks before it runs."""
        return self.bound.stages[depth].summands(self.values)

    def transform(self, depth: int, sums: Tensor) -> None:
        """Runs stage number `depth`."""
        self.values = self.bound.stages[depth].forward(self.values, sums)

    def maxima(self, words: Tensor) -> None:
        """The words of which all ranks take the maximum before encoding."""
        if self.holds and self.bound.fixed:
            self.feedback.join(self.values, self.bound.inner.pieces())
        self.bound.maxima(self.values, words)

    def chunks(self, world: int) -> list[Chunk]:
        """Its parts, ready to be encoded under the shared context."""
        return [Chunk(self, number, self.values, world) for number in range(len(self.lane.parts))]

    def finish(self) -> None:
        """All chunks are decoded: the gradients become the mean."""
        if self.bound.stages:
            self.values = self.bound.finish(self.values, self.load.x)
        if self.holds and not self.bound.fixed:
            self.feedback.receive(self.load.x, self.lane.layout.pieces())

    def learn(self, mean: Tensor, verdict: StepVerdict) -> None:
        """Shows the mean to the stages."""
        self.bound.learn(self.values, mean, verdict)

    def reconstructed(self) -> Tensor:
        """Room for what the payloads stand for, as gradients."""
        if self.reconstruction is None:
            x = self.load.x
            self.reconstruction = self.load.scratch.take("own gradients", x.nbytes).view(x.dtype)
        return self.reconstruction


class InFlightByChunks(InFlight):
    """A lane whose only stage runs chunk by chunk, there and back; its packer shares no context."""

    def __init__(self, load: LaneStep) -> None:
        super().__init__(load)
        assert self.bound.ranged is not None
        self.stage = self.bound.ranged

    def summands(self, depth: int) -> Tensor:
        return self.stage.summands(self.load.x)

    def transform(self, depth: int, sums: Tensor) -> None:
        self.stage.prepare(sums)

    def maxima(self, words: Tensor) -> None:
        self.bound.maxima(self.load.x, words)

    def chunks(self, world: int) -> list[Chunk]:
        return [RangedChunk(self, number, world) for number in range(len(self.lane.parts))]

    def finish(self) -> None:
        if self.holds and not self.bound.fixed:
            self.feedback.receive(self.load.x, self.lane.layout.pieces())

    def learn(self, mean: Tensor, verdict: StepVerdict) -> None:
        self.stage.learn(mean, mean, verdict)


class Chunk:
    """A part of a lane: encoded, sent, its reconstruction noted (while it travels), decoded.

    `values` may hold those of other chunks too: `pieces` says where its own lie.
    """

    def __init__(self, flight: InFlight, number: int, values: Tensor, world: int) -> None:
        self.flight, self.number, self.values, self.shared = flight, number, values, flight.shared
        self.packer, self.pieces = flight.lane.parts[number].packer, flight.lane.part_pieces[number]
        route, load = flight.lane.route, flight.load
        self.noted = flight.holds or flight.feedback.statistics is not None  # somebody asks what was not sent
        payload = self.packer.in_place(values) if route.in_place and not self.noted else None
        if payload is None:
            nbytes = route.payload_bytes(self.packer, world)
            payload = load.scratch.take(f"payload {load.index}.{number}", nbytes)
        self.payload = payload

    def encode(self) -> None:
        """payload = encode(values); padding is zero."""
        self.payload[self.packer.payload_bytes :].zero_()
        self.packer.encode(self.values, self.shared, self.flight.load.key, self.payload)

    def keep(self) -> None:
        """kept = x - reconstruction(payload), of values or of gradients."""
        flight, feedback = self.flight, self.flight.feedback
        if flight.bound.fixed:
            sent, base = self.reconstruct()
            feedback.keep(self.values, sent, base, self.pieces)
        else:
            self.add_reconstruction(flight.reconstructed())
            if self.number == len(flight.lane.parts) - 1:
                feedback.keep(flight.load.x, flight.reconstructed(), 0, flight.lane.layout.pieces())
        if feedback.statistics is not None:
            feedback.statistics.add_tallies(self.packer.tallies())
            feedback.statistics.add_tallies(flight.bound.tallies())

    def encode_again(self, payloads: Tensor, merged: Tensor) -> None:
        """At the owner of a share: what all ranks encoded of it to a payload of their mean."""
        packer, load = self.packer, self.flight.load
        assert isinstance(packer, TwoPhasePacker)
        merged[packer.owned_mean.granule_bytes :].zero_()
        mean = load.take("owned", packer.owned.layout.numel)
        if packer.owned.granule_bytes:
            packer.owned.decode(payloads[:, : packer.owned.granule_bytes], self.shared, mean)
        self.flight.feedback.encode_again(mean, packer, load, merged)

    def decode(self, sums: Tensor) -> None:
        """Merged payloads (or, if they do not merge, those of all ranks) to the mean."""
        flight = self.flight
        self.packer.decode(sums, self.shared, self.values)
        if flight.load.see is not None:
            for run in _runs(self.pieces):
                flight.load.see(self.values[run])
        if flight.holds and flight.bound.fixed:
            flight.feedback.receive(self.values, self.pieces)

    def reconstruct(self) -> tuple[Tensor, int]:
        """What the payload stands for, and the element of `values` at which that begins."""
        base, end = base_of(self.pieces), max((piece.where.stop for piece in self.pieces), default=0)
        sent = self.flight.load.take("own", end - base)
        self.flight.lane.local_packers[self.number].decode_local(self.payload, self.shared, sent)
        return sent, base

    def add_reconstruction(self, gradients: Tensor) -> None:
        """Writes what the payload stands for into gradients, at the latest with the last chunk."""
        bound = self.flight.bound
        values = self.flight.load.take("own", bound.inner.numel)
        self.packer.decode_local(self.payload, self.shared, values)
        if self.number == len(self.flight.lane.parts) - 1:
            bound.finish(values, gradients)


class RangedChunk(Chunk):
    """A chunk with values of its own, made when it is encoded and turned back when it is decoded."""

    def __init__(self, flight: InFlightByChunks, number: int, world: int) -> None:
        load, part = flight.load, flight.lane.parts[number]
        # where sums arrive in place the values are the payload, and several are under way
        room = f"values {load.index}.{number}" if flight.lane.route.in_place else f"values {load.index}"
        self.stage, self.first, self.last = flight.stage, part.first, part.last
        seen = flight.holds or load.see is not None or flight.feedback.statistics is not None
        self.turned = None if seen else turned(flight.stage, part.packer, part.first, part.last)
        numel = 0 if self.turned else part.last - part.first
        super().__init__(flight, number, load.take(room, numel), world)

    def encode(self) -> None:
        flight = self.flight
        if self.turned is not None:
            self.payload[self.packer.payload_bytes :].zero_()
            self.turned.encode(flight.load.x, self.payload)
            return
        self.stage.forward_range(flight.load.x, self.values, self.first, self.last)
        if flight.holds and flight.bound.fixed:
            flight.feedback.join(self.values, self.pieces)
        super().encode()

    def decode(self, sums: Tensor) -> None:
        if self.turned is not None:
            self.turned.decode(sums, self.flight.load.x)
            return
        super().decode(sums)
        self.stage.inverse_range(self.values, self.flight.load.x, self.first, self.last)

    def reconstruct(self) -> tuple[Tensor, int]:
        sent = self.flight.load.take("own", self.last - self.first)
        self.packer.decode_local(self.payload, self.shared, sent)
        return sent, 0

    def add_reconstruction(self, gradients: Tensor) -> None:
        values, _ = self.reconstruct()
        self.stage.inverse_range(values, gradients, self.first, self.last)


def _runs(pieces: Sequence[Piece]) -> list[slice]:
    """The pieces as few slices: those that follow each other are one."""
    runs: list[slice] = []
    for piece in pieces:
        if runs and runs[-1].stop == piece.offset:
            runs[-1] = slice(runs[-1].start, piece.where.stop)
        else:
            runs.append(piece.where)
    return runs

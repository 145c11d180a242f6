"""A lane: the tensors of one bucket with the same codec, feedback and route; and the bytes it sends."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

import torch

from thinwire.codecs.codec import BoundCodec, Codec
from thinwire.codecs.coder import Context, Merge, Packer, Part, cut
from thinwire.codecs.stage import Learned
from thinwire.feedback.table import whole_tensors
from thinwire.groups.base import all_reduce_max_bytes, broadcast_bytes
from thinwire.groups.collectives import mean_bytes, ordered_bytes
from thinwire.kernels import backends
from thinwire.routes import Route
from thinwire.tensors import Layout, Piece

WIRE_VERSION = 4  # with 5 workers and more, codecs that gather go by "sharded"; their payloads are the same
_SCALED_FP16 = 3  # fp16 got its scale; all other bytes are those of version 2
_UNITS = 2


def bytes_since(text: str) -> int:
    """The version in which the bytes of the codecs that a text names last changed.

    What was recorded with that version or a later one still holds.

    >>> bytes_since("qsgd:4"), bytes_since("topk:0.01 >> fp16")
    (2, 3)
    """
    return _SCALED_FP16 if "fp16" in text else _UNITS


PART_NUMEL = 1 << 21  # elements that are encoded while the part before them travels


@dataclass(frozen=True, eq=False)
class Lane:
    """A codec bound to its tensors in the phase of a step, cut into parts that follow each other."""

    codec: Codec
    layout: Layout
    feedback: str
    route: Route
    context: Context
    step: int = 0
    learned: Learned = field(default_factory=dict)
    part_numel: int | None = None  # None: PART_NUMEL

    def __post_init__(self) -> None:
        _ = self.parts  # a world that the codec cannot serve is refused now

    @cached_property
    def bound(self) -> BoundCodec:
        bound = self.codec.bind(self.layout, self.context, self.step, self.learned)
        return replace(bound, packer=self.route.bind(bound.packer))

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        packer, ranged, inner = self.bound.packer, self.bound.ranged, self.bound.inner.numel
        if ranged is None:
            return tuple(packer.parts(self._num_parts) if self._num_parts > 1 else [Part(packer, 0, inner)])
        points, allowed = ranged.cut_points(), packer.cut_points()
        if allowed is not None:
            points = sorted(set(points).intersection(allowed))
        ranges = cut(inner, points, self._num_parts)
        return tuple(Part(packer.span(first, last), first, last) for first, last in ranges)

    @property
    def _num_parts(self) -> int:
        """One, where all must be seen at once, or where a ring cut elsewhere adds in another order."""
        as_ddp_adds_it = self.codec.own_dtype and self.route.takes == {Merge.SUM}
        if as_ddp_adds_it or whole_tensors(self.feedback) or self.route.whole:
            return 1
        made_whole = self.bound.stages and self.bound.ranged is None
        numel = self.bound.inner.numel if made_whole else self.layout.numel
        return max(1, round(numel / (self.part_numel or PART_NUMEL)))

    @cached_property
    def part_pieces(self) -> list[tuple[Piece, ...]]:
        """Where each part's numbers lie: among all numbers, or, made part by part, among its own."""
        inner, apart = self.bound.inner, self.bound.ranged is not None
        return [
            (inner.moved(part.first) if apart else inner).pieces(part.first, part.last) for part in self.parts
        ]

    @cached_property
    def local_packers(self) -> list[Packer]:
        """Each part's packer for a buffer that begins where the first of the part's numbers lies."""
        both = zip(self.parts, self.part_pieces, strict=True)
        return [part.packer.moved(base_of(pieces)) for part, pieces in both]

    @property
    def sent_bytes(self) -> int:
        """What one rank sends for this lane in a step, beyond agreeing."""
        return sum(self.route.sent_bytes(part.packer, self.context.world) for part in self.parts)

    def alone(self, name: str) -> Lane:
        """The lane of one of its tensors by itself."""
        return replace(self, layout=Layout.packed(spec for spec in self.layout.specs if spec.name == name))


def base_of(pieces: Iterable[Piece]) -> int:
    """Where the first of them lies."""
    return min((piece.offset for piece in pieces), default=0)


def lanes_digest(lanes: Iterable[Lane]) -> bytes:
    """32 bytes that are equal on two ranks only if these lanes make the same messages."""
    text = "\n".join(
        f"{lane.layout.digest.hex()} {lane.codec.canonical} {lane.bound.phase} {lane.feedback} "
        f"{lane.route.name} {[part.packer.payload_bytes for part in lane.parts]}"
        for lane in lanes
    )
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def agree_bytes(lanes: Iterable[Lane]) -> int:
    """What one rank sends to agree for all lanes of a bucket: they share one message a stage."""
    lanes = list(lanes)
    world = lanes[0].context.world if lanes else 1
    words = sum(lane.bound.packer.max_words for lane in lanes)
    depths = zip_longest(*(lane.bound.stages for lane in lanes))
    summed = [sum(stage.num_summands for stage in depth if stage is not None) for depth in depths]
    return all_reduce_max_bytes(4 * words, world) + sum(ordered_bytes(numel, world) for numel in summed)


def step_bytes(lanes: Iterable[Lane]) -> int:
    """What one rank sends for a bucket in a step: exact, known before any data exist."""
    lanes = list(lanes)
    return agree_bytes(lanes) + sum(lane.sent_bytes for lane in lanes)


def tensor_bytes(lanes: Sequence[Lane]) -> dict[str, float]:
    """What each tensor of a bucket makes one rank send in a step; together it is `step_bytes(lanes)`.

    A lane's bytes are shared out in proportion to what each of its tensors would send alone: so tensors share
    what is padding, and a matrix sent as two thin ones counts by its sides.
    """
    shares: dict[str, float] = {}
    values = [lane.bound.packer.max_words + lane.bound.num_summands for lane in lanes]
    for lane, own in zip(lanes, values, strict=True):
        nbytes = lane.sent_bytes + (agree_bytes(lanes) * own / sum(values) if own else 0.0)
        weights = {name: step_bytes([lane.alone(name)]) for name in dict.fromkeys(lane.layout.names)}
        total = sum(weights.values()) or 1
        shares |= {name: nbytes * weight / total for name, weight in weights.items()}
    return shares


def whole(shares: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that are together what the shares are together, rounded.

    >>> whole({"a": 1.4, "b": 1.4, "c": 1.4})
    {'a': 1, 'b': 2, 'c': 1}
    """
    rounded, before, total = {}, 0, 0.0
    for name, share in shares.items():
        total += share
        rounded[name] = round(total) - before
        before = round(total)
    return rounded


STATUS_BYTES = 24  # what a leader tells at the end of a step of which something is remembered


def node_bytes(bucket: Layout, place: int, per_node: int) -> int:
    """Sent for a bucket by the worker at a place in its node (0 leads), exactly."""
    if per_node == 1 or not bucket.specs:
        return 0
    itemsize = bucket.specs[0].dtype.itemsize
    returned = broadcast_bytes(bucket.numel * itemsize, place, per_node)
    return mean_bytes(bucket.numel, itemsize, per_node) + returned


@dataclass(frozen=True)
class Stretch:
    """Steps one behind the other in the same phase, and what one rank sends in each."""

    phase: str
    first: int
    num_steps: int
    step_bytes: int


def dry_context(world: int) -> Context:
    """A context for computing sizes only."""
    return Context(world, 0, torch.device("cpu"), backends()["reference"])

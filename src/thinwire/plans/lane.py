"""A lane: the tensors of one bucket with the same codec, memory and route, where they lie in the bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

from thinwire.codecs.bound import BoundCodec
from thinwire.codecs.codec import Codec
from thinwire.codecs.coders.base import Context, Merge, Packer, Part
from thinwire.codecs.coders.gather import cut
from thinwire.codecs.stages.base import Learned
from thinwire.groups.base import all_reduce_max_bytes
from thinwire.groups.ordered import ordered_bytes
from thinwire.memories.table import whole_tensors
from thinwire.routes.base import Route
from thinwire.tensors.layout import Layout, Piece
from thinwire.tensors.spec import Spec

PART_NUMEL = 1 << 21  # elements that are encoded while the part before them travels


@dataclass(frozen=True, eq=False)
class Lane:
    """A codec bound to its tensors in the phase of a step, cut into parts that follow each other."""

    codec: Codec
    layout: Layout
    memory: str
    route: Route
    context: Context
    step: int = 0
    learned: Learned = field(default_factory=dict)
    part_numel: int | None = None  # None: PART_NUMEL

    def __post_init__(self) -> None:
        _ = self.parts  # a world that the codec cannot serve is refused now

    @cached_property
    def bound(self) -> BoundCodec:
        return self.codec.bind(self.layout, self.context, self.step, self.learned)

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
        if as_ddp_adds_it or whole_tensors(self.memory):
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
    def own_packers(self) -> list[Packer]:
        """Each part's packer for a buffer that begins where the first of the part's numbers lies."""
        both = zip(self.parts, self.part_pieces, strict=True)
        return [part.packer.moved(base_of(pieces)) for part, pieces in both]

    @property
    def sent_bytes(self) -> int:
        """What one rank sends for this lane in a step, beyond agreeing."""
        return sum(self.route.sent_bytes(part.packer, self.context.world) for part in self.parts)

    def alone(self, spec: Spec) -> Lane:
        """The lane of one of its tensors by itself."""
        return replace(self, layout=Layout.packed([spec]))


def base_of(pieces: Iterable[Piece]) -> int:
    """Where the first of them lies."""
    return min((piece.offset for piece in pieces), default=0)


def lanes_digest(lanes: Iterable[Lane]) -> bytes:
    """32 bytes that are equal on two ranks only if these lanes make the same messages."""
    text = "\n".join(
        f"{lane.layout.digest.hex()} {lane.codec.canonical} {lane.bound.phase} {lane.memory} "
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

"""A lane: the tensors of one bucket with the same codec, memory and route, where they lie in the bucket."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import zip_longest

from thinwire.codec import BoundCodec
from thinwire.coders.base import Merge, Packer, Part
from thinwire.coders.gather import cut
from thinwire.groups.base import max_bytes
from thinwire.groups.ordered import ordered_bytes
from thinwire.memory import whole_tensors
from thinwire.routes.base import Route
from thinwire.spec import Layout, Piece

PART_NUMEL = 1 << 21  # elements that are encoded while the part before them travels


@dataclass(frozen=True)
class Lane:
    """A bound codec with the memory and the route of its tensors, cut into parts that follow each other."""

    bound: BoundCodec
    memory: str
    route: Route
    part_numel: int | None = None  # None: PART_NUMEL
    parts: tuple[Part, ...] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self._parts()))

    def _parts(self) -> list[Part]:
        packer, ranged = self.bound.packer, self.bound.ranged
        numel = self.layout.numel if ranged is not None or not self.bound.stages else self.bound.inner.numel
        count = max(1, round(numel / (self.part_numel or PART_NUMEL)))
        as_ddp_adds_it = self.bound.codec.own_dtype and self.route.takes == {Merge.SUM}
        if as_ddp_adds_it or whole_tensors(self.memory):
            count = 1  # a ring cut elsewhere adds in another order
        if ranged is None:
            return packer.parts(count) if count > 1 else [Part(packer, 0, self.bound.inner.numel)]
        places, allowed = ranged.places(), packer.places()
        if allowed is not None:
            places = sorted(set(places).intersection(allowed))
        ranges = cut(self.bound.inner.numel, places, count)
        return [Part(packer.span(first, last), first, last) for first, last in ranges]

    @functools.cached_property
    def own_packers(self) -> list[Packer]:
        """Each part's packer for a buffer that begins where the first of the part's numbers lies."""
        inner = self.bound.inner
        return [part.packer.moved(base_of(inner.pieces(part.first, part.last))) for part in self.parts]

    @property
    def layout(self) -> Layout:
        return self.bound.layout

    @property
    def sent_bytes(self) -> int:
        """What one rank sends for this lane in a step, beyond agreeing."""
        return sum(self.route.sent_bytes(part.packer, self.bound.place.world) for part in self.parts)


def base_of(pieces: Iterable[Piece]) -> int:
    """Where the first of them lies."""
    return min((piece.offset for piece in pieces), default=0)


def lanes_digest(lanes: Iterable[Lane]) -> bytes:
    """32 bytes that are equal on two ranks only if these lanes make the same messages."""
    text = "\n".join(
        f"{lane.layout.digest.hex()} {lane.bound.codec.canonical} {lane.bound.phase} {lane.memory} "
        f"{lane.route.name} {[part.packer.num_granules * part.packer.granule_bytes for part in lane.parts]}"
        for lane in lanes
    )
    return hashlib.blake2b(text.encode(), digest_size=32).digest()


def agree_bytes(lanes: Iterable[Lane]) -> int:
    """What one rank sends to agree for all lanes of a bucket: they share one message a stage."""
    lanes = list(lanes)
    world = lanes[0].bound.place.world if lanes else 1
    words = sum(lane.bound.packer.agree_words for lane in lanes)
    depths = zip_longest(*(lane.bound.stages for lane in lanes))
    summed = [sum(stage.offer_numel for stage in depth if stage is not None) for depth in depths]
    return max_bytes(4 * words, world) + sum(ordered_bytes(numel, world) for numel in summed)


def step_bytes(lanes: Iterable[Lane]) -> int:
    """What one rank sends for a bucket in a step: exact, known before any data exist."""
    lanes = list(lanes)
    return agree_bytes(lanes) + sum(lane.sent_bytes for lane in lanes)

"""A lane: the tensors of one bucket with the same codec, memory and route, where they lie in the bucket."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from thinwire.codec import BoundCodec
from thinwire.groups.base import max_bytes
from thinwire.routes.base import Route
from thinwire.spec import Layout


@dataclass(frozen=True)
class Lane:
    """A bound codec with the memory and the route of its tensors."""

    bound: BoundCodec
    memory: str
    route: Route

    @property
    def layout(self) -> Layout:
        return self.bound.layout

    @property
    def payload_bytes(self) -> int:
        return self.route.payload_bytes(self.bound)

    @property
    def sent_bytes(self) -> int:
        """What one rank sends for this lane in a step, beyond agreeing."""
        return self.route.sent_bytes([self.bound])


def agree_bytes(lanes: Iterable[Lane]) -> int:
    """What one rank sends to agree for all lanes of a bucket: they share one message."""
    lanes = list(lanes)
    words = sum(lane.bound.packer.agree_words for lane in lanes)
    return max_bytes(4 * words, lanes[0].bound.place.world) if words else 0


def step_bytes(lanes: Iterable[Lane]) -> int:
    """What one rank sends for a bucket in a step: exact, known before any data exist."""
    lanes = list(lanes)
    return agree_bytes(lanes) + sum(lane.sent_bytes for lane in lanes)

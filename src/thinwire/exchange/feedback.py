"""Feedback: what a lane's memory and statistics see of an exchange."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from thinwire.exchange.statistics import Statistics
from thinwire.memories.base import Memory
from thinwire.tensors.layout import Piece


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

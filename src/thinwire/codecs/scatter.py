"""Rows of a lane that go to one rank each: every rank merges and decodes its own row."""

from __future__ import annotations

from functools import cached_property

from torch import Tensor

from thinwire.codecs.coder import Packer, Part, aligned
from thinwire.tensors import Key


class ScatterPacker(Packer):
    """A lane of N times the same tensors, by shape; the payload of row r is what rank r needs.

    Any packer can be cut so: integers under shared scales are added exactly, floats in rank order, and what
    cannot be added is decoded payload by payload. Nothing is rounded twice.
    """

    def __init__(self, whole: Packer) -> None:
        self.whole, self.context = whole, whole.context
        self.max_words = whole.max_words
        self.num_granules = self.context.world
        self.granule_bytes = aligned(self.rows[0].payload_bytes)

    @cached_property
    def rows(self) -> list[Packer]:
        """A packer for each rank's row."""
        return self.whole.shards(self.context.world)

    @property
    def own(self) -> Packer:
        """That of this rank's row."""
        return self.rows[self.context.rank]

    def parts(self, count: int) -> list[Part]:
        raise NotImplementedError("rows are not cut into parts")

    def moved(self, base: int) -> Packer:
        return ScatterPacker(self.whole.moved(base))

    def maxima(self, x: Tensor, words: Tensor) -> None:
        self.whole.maxima(x, words)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        for row, part in self._pairs(payload):
            row.encode(x, shared, key, part[: row.payload_bytes])
            part[row.payload_bytes :].zero_()

    def tallies(self) -> dict[str, dict[str, float]]:
        return self.own.tallies()

    def merged_bytes(self, num_granules: int) -> int:
        return self.own.merged_bytes(self.own.num_granules)

    def merge(self, payloads: Tensor, shared: Tensor, sums: Tensor) -> None:
        if self.own.payload_bytes:
            self.own.merge(payloads[:, : self.own.payload_bytes].contiguous(), shared, sums)

    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        if self.own.payload_bytes:
            self.own.decode(sums, shared, x)

    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        for row, part in self._pairs(payload):
            row.decode_local(part[: row.payload_bytes], shared, x)

    def _pairs(self, payload: Tensor) -> list[tuple[Packer, Tensor]]:
        parts = payload.view(len(self.rows), -1) if self.granule_bytes else [payload] * len(self.rows)
        return list(zip(self.rows, parts, strict=True))

"""Batch: the rows of some OTs and the index of the first; the index is the tweak of the hash, used once."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire_private.ot.prg import Bytes


@dataclass(frozen=True)
class Batch:
    """Rows of 16 bytes (32 for KK13), one per OT, flat; `first_index` never repeats under one hash key."""

    rows: Bytes
    first_index: int

    def part(self, start: int, stop: int, row_bytes: int = 16) -> Batch:
        """OTs start..stop."""
        return Batch(self.rows[start * row_bytes : stop * row_bytes], self.first_index + start)


class Counter:
    """Hands out indices, each once."""

    def __init__(self) -> None:
        self._next = 0

    def take(self, count: int) -> int:
        """The first of `count` new indices."""
        first = self._next
        self._next += count
        if self._next >= 1 << 62:
            raise OverflowError("a session has used up its OT indices: start a new one")
        return first

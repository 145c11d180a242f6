"""OtKind: which OT extension two parties use and what it costs; OtBatch: the rows of some OTs."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire_private.errors import ModelError
from thinwire_private.ot.primitives import Bytes, packed_bytes

SECURITY_BITS = 128
KK13_ROW_BITS = 256


@dataclass(frozen=True)
class OtKind:
    """SoftSpoken<k>: c2 = 128 / k bits per 1-of-2 OT (k = 1 is IKNP); with `kk13`, 256 bits per 1-of-N OT.

    >>> OtKind.read("softspoken:8").row_bytes(1000), OtKind.read("kk13+iknp").wide_bytes(1000)
    (2000, 32000)
    """

    k: int = 1
    kk13: bool = False

    @staticmethod
    def read(text: str) -> OtKind:
        """From a text: kk13+iknp, or softspoken:K with K = 1, 2, 4, 8."""
        kinds = {"kk13+iknp": OtKind(1, True), **{f"softspoken:{k}": OtKind(k) for k in (1, 2, 4, 8)}}
        if text not in kinds:
            raise ModelError(f"OT {text!r} is unknown: use one of {', '.join(kinds)}")
        return kinds[text]

    @property
    def name(self) -> str:
        """The text."""
        return "kk13+iknp" if self.kk13 else f"softspoken:{self.k}"

    def row_bytes(self, count: int) -> int:
        """The receiver's message for `count` 1-of-2 OTs: 128 / k rows of `count` bits."""
        return SECURITY_BITS // self.k * packed_bytes(count, 1)

    def wide_bytes(self, count: int) -> int:
        """The receiver's message for `count` 1-of-N OTs of KK13."""
        return KK13_ROW_BITS * packed_bytes(count, 1)


@dataclass(frozen=True)
class OtBatch:
    """Rows of 16 bytes (32 for KK13), one per OT, flat; `first_index` never repeats under one hash key."""

    rows: Bytes
    first_index: int

    def part(self, start: int, stop: int, row_bytes: int = 16) -> OtBatch:
        """OTs start..stop."""
        return OtBatch(self.rows[start * row_bytes : stop * row_bytes], self.first_index + start)


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

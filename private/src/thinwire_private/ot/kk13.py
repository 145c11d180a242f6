"""KK13: 1-of-N OT for 256 bits (Kolesnikov and Kumaresan, CRYPTO 2013), as SiRNN's code uses it.

1. Set-up: 256 ordinary OTs in the other direction give the sender k_p^{s_p}, the receiver both k_p^0, k_p^1.
2. For choices j the receiver sends u_p = PRG(k_p^0) xor PRG(k_p^1) xor C(j)_p, C the Walsh-Hadamard code; the
   sender gets q_i = t_i xor (C(j_i) and s).
3. Pad of message j: H(rho(x_low) xor x_high, i), x = q_i xor (C(j) and s): the receiver has that of its j
   only. Two codewords differ in 64 places of each half, so a guess of x needs 128 bits of s. rho is AES
   under a second key of the session.

Cost: 256 + N * m bits for messages of m bits; the seeds cost 256 ordinary OTs, once.
"""

from __future__ import annotations

import numpy as np

from thinwire_private.ot.kind import KK13_ROW_BITS, Counter, OtBatch, OtKind
from thinwire_private.ot.primitives import Bytes, as_bytes, derive, native

_HIGH = 1 << 63  # the second half of a seed is hashed under an index that no OT has


def seeds(rows: OtBatch, delta: Bytes | None, hash_: object) -> Bytes:
    """128-bit seeds H(row xor delta, i) of 256 OTs, (256, 16) bytes."""
    halves = np.empty((KK13_ROW_BITS, 2), np.uint64)
    for place, top in ((0, 0), (1, _HIGH)):
        half = np.empty(KK13_ROW_BITS, np.uint64)
        hash_.pads(rows.rows, delta, rows.first_index | top, half)  # type: ignore[attr-defined]
        halves[:, place] = half
    return halves.view(np.uint8).reshape(KK13_ROW_BITS, 16)


class WideSender:
    """The end that can make the pads of all N messages."""

    def __init__(self, session: bytes, secret: Bytes, chosen: Bytes) -> None:
        """secret: 256 bits, one per byte; chosen: the seeds they chose."""
        self.secret = np.packbits(secret, bitorder="little")
        self._hash = native().Hash(as_bytes(derive(session, "kk13 hash")[:32]))
        self._counter = Counter()
        self._core = native().Kk13Sender(np.ascontiguousarray(chosen).reshape(-1), self.secret)

    def extend(self, message: memoryview, count: int) -> OtBatch:
        """q of the next `count` OTs."""
        rows = np.empty(32 * count, np.uint8)
        self._core.extend(as_bytes(message), count, rows)
        return OtBatch(rows, self._counter.take(count))

    def tables(self, batch: OtBatch, log: int) -> Bytes:
        """8-bit pads (count, 2^log)."""
        count = batch.rows.size // 32
        out = np.empty(count << log, np.uint8)
        self._hash.kk13_tables(batch.rows, self.secret, log, batch.first_index, out)
        return out.reshape(count, 1 << log)


class WideReceiver:
    """The end that has the pad of the chosen message."""

    def __init__(self, kind: OtKind, session: bytes, pairs: Bytes) -> None:
        """pairs: both seeds of the 256 OTs, (256, 2, 16)."""
        self._kind = kind
        self._hash = native().Hash(as_bytes(derive(session, "kk13 hash")[:32]))
        self._counter = Counter()
        self._core = native().Kk13Receiver(np.ascontiguousarray(pairs).reshape(-1))

    def extend(self, choices: Bytes) -> tuple[memoryview, OtBatch]:
        """The message for these choices, and t of their OTs."""
        message = np.empty(self._kind.wide_bytes(choices.size), np.uint8)
        rows = np.empty(32 * choices.size, np.uint8)
        self._core.extend(np.ascontiguousarray(choices), message, rows)
        return message.data, OtBatch(rows, self._counter.take(choices.size))

    def entries(self, batch: OtBatch) -> Bytes:
        """8-bit pads of the chosen messages."""
        out = np.empty(batch.rows.size // 32, np.uint8)
        self._hash.kk13_entries(batch.rows, batch.first_index, out)
        return out

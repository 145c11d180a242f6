"""SoftSpoken OT extension, semi-honest (Roy, eprint 2022/192): n OTs for 128 / k bits each; k = 1 is IKNP.

1. Set-up: the OT receiver grows 128 / k trees of 2^k leaves; the sender picks Delta and learns all leaves but
   leaf Delta_g of tree g, through one base OT per level (the sender of the extension is their receiver).
2. For n choices x the receiver sends d_g = x xor u_g and keeps v_i; the sender gets q_i = v_i xor x_i Delta.
3. Keys: H(q_i, i) = H(v_i, i) where x_i = 0, H(q_i xor Delta, i) = H(v_i, i) where x_i = 1.

Cost: 128 / k bits per OT; set-up 128 * (64 + 32) + 32 bytes.
"""

from __future__ import annotations

import numpy as np

from thinwire_private.ot import tree
from thinwire_private.ot.base import BaseReceiver, BaseSender, message_bytes
from thinwire_private.ot.batch import Batch, Counter
from thinwire_private.ot.kind import SECURITY_BITS, OtKind
from thinwire_private.ot.labels import derive
from thinwire_private.ot.native import native
from thinwire_private.ot.prg import Bytes, Prg, as_bytes

NUM_BASE = SECURITY_BITS
BLOCK_OTS = 128  # made at once, ahead or when they are needed
BASE_REQUEST_BYTES, _POINT_BYTES = message_bytes(NUM_BASE)
BASE_REPLY_BYTES = _POINT_BYTES + NUM_BASE * 2 * tree.NODE_BYTES


class Sender:
    """The end with Delta; it can make both keys of every OT."""

    def __init__(self, kind: OtKind, session: bytes, prg: Prg) -> None:
        self._kind, self._session = kind, session
        self.delta = prg.take(16)
        self.hash = native().Hash(as_bytes(derive(session, "hash")[:32]))
        self.counter = Counter()
        bits = np.unpackbits(self.delta, bitorder="little")
        self._base = BaseReceiver(session, [1 - int(bit) for bit in bits], prg)
        self._bits = bits.reshape(SECURITY_BITS // kind.k, kind.k).astype(np.int64)

    @property
    def request(self) -> bytes:
        """The first message of the set-up."""
        return self._base.message

    def finish(self, reply: memoryview) -> None:
        """Take the receiver's message and end the set-up."""
        k, data = self._kind.k, bytes(reply)
        keys = self._base.keys(data[:_POINT_BYTES])
        sealed = as_bytes(data)[_POINT_BYTES:].reshape(NUM_BASE, 2, tree.NODE_BYTES)
        sides = 1 - self._bits.reshape(-1)
        opened = sealed[np.arange(NUM_BASE), sides] ^ as_bytes(b"".join(keys)).reshape(NUM_BASE, -1)
        hidden = (self._bits << np.arange(k)).sum(axis=1)
        leaves = tree.regrow(hidden, opened.reshape(-1, k, tree.NODE_BYTES), k, tree.Doubler(self._session))
        self._core = native().SoftSpokenSender(k, leaves.reshape(-1), self.delta)

    def extend(self, message: memoryview, count: int) -> Batch:
        """q of the next `count` OTs, from the receiver's message."""
        rows = np.empty(16 * count, np.uint8)
        self._core.extend(as_bytes(message), count, rows)
        return Batch(rows, self.counter.take(count))

    def prepare(self, num_blocks: int) -> None:
        """Make what depends on no message, for the next blocks of 128 OTs; an `extend` takes whole blocks."""
        self._core.prepare(num_blocks)


class Receiver:
    """The end with the choices; it can make one key of every OT."""

    def __init__(self, kind: OtKind, session: bytes, prg: Prg) -> None:
        self._kind, self._session = kind, session
        self.hash = native().Hash(as_bytes(derive(session, "hash")[:32]))
        self.counter = Counter()
        self._base = BaseSender(session, prg)
        roots = prg.take(SECURITY_BITS // kind.k * tree.NODE_BYTES).reshape(-1, tree.NODE_BYTES)
        leaves, self._sums = tree.grow(roots, kind.k, tree.Doubler(session))
        self._core = native().SoftSpokenReceiver(kind.k, np.ascontiguousarray(leaves).reshape(-1))

    def reply(self, request: memoryview) -> bytes:
        """The message that ends the set-up: the sums of every level, each sealed with its base OT key."""
        keys = as_bytes(b"".join(key for pair in self._base.keys(bytes(request)) for key in pair))
        return self._base.message + (self._sums.reshape(-1) ^ keys).tobytes()

    def extend(self, choices: Bytes) -> tuple[memoryview, Batch]:
        """The message for these choice bits (one per byte), and v of their OTs."""
        count = choices.size
        message = np.empty(self._kind.row_bytes(count), np.uint8)
        rows = np.empty(16 * count, np.uint8)
        self._core.extend(np.packbits(choices, bitorder="little"), count, message, rows)
        return message.data, Batch(rows, self.counter.take(count))

    def prepare(self, num_blocks: int) -> None:
        """Make what depends on no choice, for the next blocks of 128 OTs; an `extend` takes whole blocks."""
        self._core.prepare(num_blocks)

"""SoftSpoken OT extension, semi-honest (Roy, eprint 2022/192): n OTs for 128 / k bits each; k = 1 is IKNP.

1. Set-up: the OT receiver grows 128 / k trees of 2^k leaves; the sender picks Delta and learns all leaves but
   leaf Delta_g of tree g, through one base OT per level (the sender of the extension is their receiver).
   A GGM tree has 2^k leaves from one root; one key per level reveals all leaves but one.
2. For n choices x the receiver sends d_g = x xor u_g and keeps v_i; the sender gets q_i = v_i xor x_i Delta.
3. Keys: H(q_i, i) = H(v_i, i) where x_i = 0, H(q_i xor Delta, i) = H(v_i, i) where x_i = 1.

Cost: 128 / k bits per OT; set-up 128 * (64 + 32) + 32 bytes.
"""

from __future__ import annotations

import numpy as np

from thinwire_private.ot.base import BaseReceiver, BaseSender, message_bytes
from thinwire_private.ot.kind import SECURITY_BITS, Counter, OtBatch, OtKind
from thinwire_private.ot.primitives import Bytes, Prg, as_bytes, derive, native

NODE_BYTES = 16
NDArrayInt = np.ndarray[tuple[int, ...], np.dtype[np.int64]]
NUM_BASE = SECURITY_BITS
BLOCK_OTS = 128  # made at once, ahead or when they are needed
BASE_REQUEST_BYTES, _POINT_BYTES = message_bytes(NUM_BASE)
BASE_REPLY_BYTES = _POINT_BYTES + NUM_BASE * 2 * NODE_BYTES


class Doubler:
    """The doubling of a node: child_b = pi_b(node) xor node, pi_0 and pi_1 AES under keys of the session."""

    def __init__(self, session: bytes) -> None:
        keys = derive(session, "tree")
        self._sides = [native().Permutation(as_bytes(keys[16 * b : 16 * b + 16])) for b in (0, 1)]

    def children(self, nodes: Bytes) -> Bytes:
        """Nodes (..., 16) to children (..., 2, 16)."""
        flat = np.ascontiguousarray(nodes).reshape(-1)
        sides = []
        for side in self._sides:
            out = np.empty_like(flat)
            side.apply(flat, out)
            sides.append((out ^ flat).reshape(*nodes.shape[:-1], 1, NODE_BYTES))
        return np.concatenate(sides, axis=-2)


def grow(roots: Bytes, k: int, doubler: Doubler) -> tuple[Bytes, Bytes]:
    """All leaves (trees, 2^k, 16), and per level the sums of left and of right nodes (trees, k, 2, 16).

    Bit b of a leaf's number is its turn at level b.
    """
    nodes, sums = roots[:, None, :], []
    for _ in range(k):
        both = doubler.children(nodes)  # (trees, nodes, 2, 16)
        sums.append(np.bitwise_xor.reduce(both, axis=1))
        nodes = np.concatenate([both[:, :, 0], both[:, :, 1]], axis=1)  # the new turn is the number's top bit
    return nodes, np.stack(sums, axis=1)


def regrow(hidden: NDArrayInt, sums: Bytes, k: int, doubler: Doubler) -> Bytes:
    """All leaves but leaf hidden[g] of tree g (left zero), from the sum of the other side of each level.

    sums (trees, k, 16): at level b the sum of the nodes whose turn is not bit b of `hidden`.
    """
    trees = len(hidden)
    nodes = np.zeros((trees, 1, NODE_BYTES), np.uint8)
    each = np.arange(trees)
    path = np.zeros(trees, np.int64)  # the number of the unknown node at this level
    for level in range(k):
        both = doubler.children(nodes)
        both[each, path] = 0
        turn = (hidden >> level) & 1
        known = np.bitwise_xor.reduce(both, axis=1)[each, 1 - turn]
        both[each, path, 1 - turn] = sums[:, level] ^ known
        nodes = np.concatenate([both[:, :, 0], both[:, :, 1]], axis=1)
        path = path + (turn << level)
    return nodes


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
        sealed = as_bytes(data)[_POINT_BYTES:].reshape(NUM_BASE, 2, NODE_BYTES)
        sides = 1 - self._bits.reshape(-1)
        opened = sealed[np.arange(NUM_BASE), sides] ^ as_bytes(b"".join(keys)).reshape(NUM_BASE, -1)
        hidden = (self._bits << np.arange(k)).sum(axis=1)
        leaves = regrow(hidden, opened.reshape(-1, k, NODE_BYTES), k, Doubler(self._session))
        self._core = native().SoftSpokenSender(k, leaves.reshape(-1), self.delta)

    def extend(self, message: memoryview, count: int) -> OtBatch:
        """q of the next `count` OTs, from the receiver's message."""
        rows = np.empty(16 * count, np.uint8)
        self._core.extend(as_bytes(message), count, rows)
        return OtBatch(rows, self.counter.take(count))

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
        roots = prg.take(SECURITY_BITS // kind.k * NODE_BYTES).reshape(-1, NODE_BYTES)
        leaves, self._sums = grow(roots, kind.k, Doubler(session))
        self._core = native().SoftSpokenReceiver(kind.k, np.ascontiguousarray(leaves).reshape(-1))

    def reply(self, request: memoryview) -> bytes:
        """The message that ends the set-up: the sums of every level, each sealed with its base OT key."""
        keys = as_bytes(b"".join(key for pair in self._base.keys(bytes(request)) for key in pair))
        return self._base.message + (self._sums.reshape(-1) ^ keys).tobytes()

    def extend(self, choices: Bytes) -> tuple[memoryview, OtBatch]:
        """The message for these choice bits (one per byte), and v of their OTs."""
        count = choices.size
        message = np.empty(self._kind.row_bytes(count), np.uint8)
        rows = np.empty(16 * count, np.uint8)
        self._core.extend(np.packbits(choices, bitorder="little"), count, message, rows)
        return message.data, OtBatch(rows, self.counter.take(count))

    def prepare(self, num_blocks: int) -> None:
        """Make what depends on no choice, for the next blocks of 128 OTs; an `extend` takes whole blocks."""
        self._core.prepare(num_blocks)

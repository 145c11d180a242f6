"""GGM trees: 2^k leaves from one root; the peer learns all leaves but one, from one key per level."""

from __future__ import annotations

import numpy as np

from thinwire_private.ot.labels import derive
from thinwire_private.ot.native import native
from thinwire_private.ot.prg import Bytes, as_bytes

NODE_BYTES = 16


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


NDArrayInt = np.ndarray[tuple[int, ...], np.dtype[np.int64]]

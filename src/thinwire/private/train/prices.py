"""Prices: the bytes that one private picture costs, from the formulas of the protocols.

Stand-in until `private/program.py` is there: weight bits as choices, SoftSpoken<8>, sequential TR and ReLU.
"""

from __future__ import annotations

from math import ceil, log2

from thinwire.private.net.graph import Graph
from thinwire.private.net.nodes import Requant, Weighted

COT_BITS = 17


def picture_bytes(graph: Graph) -> int:
    """Bytes for one picture, both directions, offline and online; one-time set-up is not in it."""
    total = 0
    for node in graph:
        match node:
            case Weighted():
                rows, depth, cols = node.dims
                payload = sum(node.acc_bits - bit for bit in range(node.weight_bits))
                total += rows * depth * (node.weight_bits * COT_BITS + cols * payload)
                total += node.taken[0].size * (COT_BITS + node.acc_bits - node.in_bits - 1)
            case Requant():
                kept = node.taken[0].bits - node.shift
                each = mill(node.shift) + COT_BITS + kept
                if node.relu:
                    each += mill(kept - 1) + 2 * (COT_BITS + kept)
                if node.clamp:
                    each += mill(kept) + 2 * (COT_BITS + node.value.bits + 1)
                total += node.value.size * each
            case _:
                pass
    return ceil(total / 8)


def mill(bits: int) -> int:
    """Wire bits of one comparison of `bits`-bit numbers."""
    if bits <= 0:
        return 0
    if bits <= 4:
        return bits * COT_BITS + (1 << bits)
    digits = ceil(bits / 4)
    ands = 2 * digits - 2 - ceil(log2(digits))
    return digits * (4 * COT_BITS + 32) + ands * (2 * COT_BITS + 4)

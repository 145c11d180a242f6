"""Shares for tests: all pairs of a small ring, or random ones with the edges in front."""

from __future__ import annotations

import numpy as np

from thinwire_private.net.nodes import IntArray
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.operator import reduce


def all_pairs(width: int) -> tuple[Words, Words]:
    """Every (x0, x1) of Z_{2^width}."""
    values = np.arange(1 << width, dtype=np.uint64)
    return np.repeat(values, values.size), np.tile(values, values.size)


def random_pairs(width: int, count: int, seed: int = 0, top: int | None = None) -> tuple[Words, Words]:
    """Shares of random x < 2^top (default: all of the ring); first all pairs of edge values."""
    generator = np.random.default_rng(seed)
    top = width if top is None else top
    x = generator.integers(0, 1 << top, count, dtype=np.uint64)
    x0 = generator.integers(0, 1 << width, count, dtype=np.uint64)
    edges = np.array([0, 1, (1 << (width - 1)) - 1, 1 << (width - 1), (1 << width) - 1], np.uint64)
    values = np.array([0, 1, (1 << top) // 2 - 1, (1 << top) // 2, (1 << top) - 1], np.uint64)
    x[: values.size * edges.size] = np.repeat(values, edges.size)
    x0[: values.size * edges.size] = np.tile(edges, values.size)
    return x0, reduce(x - x0, width)


def signed(values: Words, width: int) -> IntArray:
    """Ring elements as signed integers."""
    numbers = values.astype(np.int64)
    return np.where(numbers >> (width - 1), numbers - (1 << width), numbers)

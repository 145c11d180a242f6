"""Matrix products: every form equals W X, also from kept seeds, at widths of 32-bit and 64-bit words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pair import Pair, both

from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.extend import SIRNN, UNKNOWN
from thinwire_private.protocols.linear import (
    ActivationBits,
    Shape,
    Sirnn,
    SirnnSwapped,
    WeightBits,
    ring_matmul,
)
from thinwire_private.protocols.operator import encode, reduce

SHAPES = [
    Shape(3, 5, 7, 2),
    Shape(4, 30, 33, 4),
    Shape(10, 64, 1, 8),
    Shape(2, 3, 300, 16),
    Shape(1, 1, 1, 2),
]


@pytest.fixture(scope="module", params=["kk13+iknp", "softspoken:4"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


def weights(shape: Shape) -> np.ndarray:
    half = 1 << (shape.weight_bits - 1)
    w = np.random.default_rng(0).integers(-half, half, (shape.d1, shape.d2))
    w.reshape(-1)[:2] = [-half, half - 1][: w.size]
    return w


def shares(shape: Shape, top: int, width: int) -> tuple[Words, Words, Words]:
    generator = np.random.default_rng(1)
    x = generator.integers(0, 1 << top, (shape.d2, shape.d3), dtype=np.uint64)
    x0 = generator.integers(0, 1 << width, x.shape, dtype=np.uint64)
    return x, x0, reduce(x - x0, width)


def check(pair: Pair, operator: Any, shape: Shape, width: int, x: tuple[Words, Words, Words]) -> None:
    w = weights(shape)
    y0, y1 = pair.run(operator, lambda p: operator.run(p, w, x[1]), lambda p: operator.run(p, None, x[2]))
    expected = encode(w @ x[0].astype(np.int64), width).reshape(shape.d1, shape.d3)
    assert np.array_equal(reduce(y0 + y1, width), expected)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("in_bits", [1, 6, 16])
def test_every_form(pair: Pair, shape: Shape, in_bits: int) -> None:
    width = max(shape.weight_bits, in_bits + 1) + in_bits + shape.sum_bits + 1
    check(pair, WeightBits(shape, width, pair.kind), shape, width, shares(shape, in_bits, width))
    narrow = in_bits + 1
    check(pair, ActivationBits(shape, narrow, width, pair.kind), shape, width, shares(shape, in_bits, narrow))
    for form in (Sirnn, SirnnSwapped):
        for msb, ring in ((UNKNOWN, in_bits), (SIRNN, narrow)):
            operator = form(shape, ring, width, pair.kind, msb)
            check(pair, operator, shape, width, shares(shape, in_bits, ring))


@pytest.mark.parametrize("shape", SHAPES[:3])
def test_the_clients_own_picture_needs_no_wrap(pair: Pair, shape: Shape) -> None:
    width = shape.weight_bits + 6 + shape.sum_bits
    x, _, _ = shares(shape, 6, 6)
    mine = (x, np.zeros_like(x), x)
    for form in (Sirnn, SirnnSwapped):
        check(pair, form(shape, 6, width, pair.kind, UNKNOWN, is_plain=True), shape, width, mine)
    check(pair, ActivationBits(shape, 6, width, pair.kind, is_plain=True), shape, width, mine)


def test_seeds_serve_many_products_with_fresh_pads(pair: Pair) -> None:
    shape, width = SHAPES[1], 20
    operator, w = WeightBits(shape, width, pair.kind), weights(SHAPES[1])
    seeds = both(lambda: operator.seeds(pair.server, w), lambda: operator.seeds(pair.client, None))
    x, _, _ = shares(shape, 6, 6)
    found = []
    for _ in range(2):
        y0, y1 = both(
            lambda: operator.cross(pair.server, seeds[0], None),
            lambda: operator.cross(pair.client, seeds[1], x),
        )
        expected = encode(w @ x.astype(np.int64), width).reshape(shape.d1, shape.d3)
        assert np.array_equal(reduce(y0 + y1, width), expected)
        found.append(y1)
    # The sender's share is made of its pads: the same share twice would be the same pads twice.
    assert (found[0] == found[1]).mean() < 0.01


def test_ring_matmul_is_exact_at_the_edges() -> None:
    for width in (8, 18, 40, 63):
        w = np.array([[-(1 << 15), (1 << 15) - 1, -1] * 100])
        x = np.full((300, 2), (1 << width) - 1, np.uint64)
        expected = [[int(sum(int(a) * ((1 << width) - 1) for a in w[0])) % (1 << width)] * 2]
        assert ring_matmul(w, x, width).tolist() == expected

"""Element-wise protocols: every pair of shares of small rings, random ones and edges of larger rings."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from pair import Pair
from shares import all_pairs, random_pairs, signed

from thinwire_private.ot.primitives import Words
from thinwire_private.protocols.b2a import B2A, Blend, Mux
from thinwire_private.protocols.comparison import Mill
from thinwire_private.protocols.cot import Cot
from thinwire_private.protocols.extend import ONE_COT, SIRNN, Ars, Extend, Truncate
from thinwire_private.protocols.operator import reduce, top_bit
from thinwire_private.protocols.pool import Argmax, Max
from thinwire_private.protocols.requant import Requantize
from thinwire_private.protocols.sign import Msb, Relu, Wrap, WrapMsbKnown
from thinwire_private.protocols.triples import TripleMaker

KINDS = ("kk13+iknp", "softspoken:1", "softspoken:8")
SMALL = (1, 2, 5, 6)
LARGE = (8, 17, 32, 37)


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


@pytest.fixture(params=[*SMALL, *LARGE])
def case(request: pytest.FixtureRequest) -> tuple[int, Words, Words]:
    """(width, x0, x1)."""
    width = request.param
    return width, *(all_pairs(width) if width in SMALL else random_pairs(width, 2000, width))


def run(pair: Pair, operator: Any, server: tuple[object, ...], client: tuple[object, ...]) -> Words:
    """The sum (or xor, for bits) of the two results."""
    y0, y1 = pair.run(operator, lambda p: operator.run(p, *server), lambda p: operator.run(p, *client))
    return y0 ^ y1 if y0.dtype == np.uint8 else y0 + y1


def bits_of(x0: Words) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    bits = np.random.default_rng(1).integers(0, 2, (2, x0.size)).astype(np.uint8)
    return bits[0], bits[1], bits[0] ^ bits[1]


def test_mill(pair: Pair, case: tuple[int, Words, Words]) -> None:
    width, a, b = case
    operator = Mill(a.size, width, pair.kind)
    gt0, gt1 = pair.run(operator, lambda p: operator.run(p, [a]), lambda p: operator.run(p, [b]))
    assert np.array_equal(gt0[0] ^ gt1[0], a > b)


def test_wrap_and_msb(pair: Pair, case: tuple[int, Words, Words]) -> None:
    width, x0, x1 = case
    carried = [(int(a) + int(b)) >> width for a, b in zip(x0, x1, strict=True)]
    assert np.array_equal(run(pair, Wrap(x0.size, width, pair.kind), (x0,), (x1,)), carried)
    if width > 1:
        top = top_bit(reduce(x0 + x1, width), width)
        assert np.array_equal(run(pair, Msb(x0.size, width, pair.kind), (x0,), (x1,)), top)


def test_wrap_with_a_shared_top_bit(pair: Pair, case: tuple[int, Words, Words]) -> None:
    width, x0, x1 = case
    top = top_bit(reduce(x0 + x1, width), width)
    share = np.random.default_rng(2).integers(0, 2, x0.size).astype(np.uint8)
    carried = [(int(a) + int(b)) >> width for a, b in zip(x0, x1, strict=True)]
    operator = WrapMsbKnown(x0.size, width, pair.kind)
    assert np.array_equal(run(pair, operator, (x0, share), (x1, share ^ top)), carried)


def test_b2a_and_mux(pair: Pair, case: tuple[int, Words, Words]) -> None:
    width, x0, x1 = case
    b0, b1, bit = bits_of(x0)
    found = run(pair, B2A(x0.size, width, pair.kind), (b0,), (b1,))
    assert np.array_equal(reduce(found, width), bit)
    for chosen in (False, True):
        found = run(pair, Mux(x0.size, width, pair.kind, chosen), (b0, x0), (b1, x1))
        assert np.array_equal(reduce(found, width), bit * reduce(x0 + x1, width))


@pytest.mark.parametrize("chosen", [False, True])
def test_relu(pair: Pair, case: tuple[int, Words, Words], chosen: bool) -> None:
    width, x0, x1 = case
    if width == 1:
        return
    found = run(pair, Relu(x0.size, width, pair.kind, chosen), (x0,), (x1,))
    x = signed(reduce(x0 + x1, width), width)
    assert np.array_equal(reduce(found, width), np.maximum(x, 0))


@pytest.mark.parametrize("is_signed", [False, True])
def test_extension_of_unknown_sign(pair: Pair, case: tuple[int, Words, Words], is_signed: bool) -> None:
    width, x0, x1 = case
    wide = width + 7
    found = run(pair, Extend(x0.size, width, wide, pair.kind, signed=is_signed), (x0,), (x1,))
    x = reduce(x0 + x1, width)
    expected = reduce(signed(x, width).view(np.uint64), wide) if is_signed else x
    assert np.array_equal(reduce(found, wide), expected)


@pytest.mark.parametrize("form", [SIRNN, ONE_COT])
@pytest.mark.parametrize("width", [2, 5, 6, 9, 17, 32])
def test_extension_with_a_top_bit_of_zero(pair: Pair, width: int, form: str) -> None:
    if width <= 6:
        x0, x1 = all_pairs(width)
        low = top_bit(reduce(x0 + x1, width), width) == 0
        x0, x1 = x0[low], x1[low]
    else:
        x0, x1 = random_pairs(width, 2000, top=width - 1)
    found = run(pair, Extend(x0.size, width, width + 9, pair.kind, form), (x0,), (x1,))
    assert np.array_equal(reduce(found, width + 9), reduce(x0 + x1, width))


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_truncation_and_arithmetic_shift(pair: Pair, case: tuple[int, Words, Words], share: float) -> None:
    width, x0, x1 = case
    shift = round(width * share)
    if not 0 < shift < width:
        return
    x = reduce(x0 + x1, width)
    found = run(pair, Truncate(x0.size, width, shift, pair.kind), (x0,), (x1,))
    assert np.array_equal(reduce(found, width - shift), x >> np.uint64(shift))
    found = run(pair, Ars(x0.size, width, shift, pair.kind), (x0,), (x1,))
    expected = reduce((signed(x, width) >> shift).view(np.uint64), width)
    assert np.array_equal(reduce(found, width), expected)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize(
    ("width", "shift", "out_bits"),
    [(6, 0, 3), (6, 2, 2), (6, 3, 4), (6, 5, 2), (18, 8, 6), (20, 3, 8), (24, 11, 6)],
)
def test_requant(pair: Pair, width: int, shift: int, out_bits: int, clamp: bool, fused: bool) -> None:
    x0, x1 = all_pairs(width) if width == 6 else random_pairs(width, 3000)
    x = signed(reduce(x0 + x1, width), width) >> shift
    out_width = out_bits + 1
    for relu in (True, False):
        if not relu:  # unsigned: the top bit is 0
            low = top_bit(reduce(x0 + x1, width), width) == 0
            x0, x1, x = x0[low], x1[low], x[low]
        for chosen in (False, True):
            operator = Requantize(
                x0.size, width, shift, out_bits, out_width, pair.kind, relu, clamp, fused, chosen, ONE_COT
            )
            y = np.maximum(x, 0)
            y = np.minimum(y, 2**out_bits - 1) if clamp else y % 2**out_width
            assert np.array_equal(reduce(run(pair, operator, (x0,), (x1,)), out_width), y)
        ahead = replace(operator, chosen=False, ahead=True)
        stocks = pair.run(ahead.maker, ahead.maker.run, ahead.maker.run)
        found = run(pair, ahead, (x0, stocks[0]), (x1, stocks[1]))
        assert np.array_equal(reduce(found, out_width), y)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 9, 10])
def test_largest_of_several(pair: Pair, size: int) -> None:
    width, count = 9, 500
    x = np.random.default_rng(size).integers(-20, 20, (size, count))  # few values, so that many are equal
    x0 = np.random.default_rng(0).integers(0, 1 << width, x.shape, dtype=np.uint64)
    x1 = reduce(x.view(np.uint64) - x0, width)
    found = run(pair, Max(count, size, width, pair.kind), (x0,), (x1,))
    assert np.array_equal(signed(reduce(found, width), width), x.max(axis=0))
    operator = Argmax(count, size, width, pair.kind)
    found = run(pair, operator, (x0,), (x1,))
    assert np.array_equal(reduce(found, operator.index_bits), x.argmax(axis=0))


@pytest.mark.parametrize("sender", [0, 1])
def test_cot(pair: Pair, sender: int) -> None:
    operator = Cot(1000, 13, sender, pair.kind)
    d = np.random.default_rng(0).integers(0, 1 << 13, 1000, dtype=np.uint64)
    choices = np.random.default_rng(1).integers(0, 2, 1000).astype(np.uint8)
    parts = [lambda p: operator.send(p, d), lambda p: operator.receive(p, choices)]
    found = pair.run(operator, parts[sender], parts[1 - sender])
    assert np.array_equal(reduce(found[1 - sender] - found[sender], 13), d * choices)


@pytest.mark.parametrize(("single", "double"), [(100, 0), (0, 77), (33, 44)])
def test_triples_are_products_and_are_handed_out_once(pair: Pair, single: int, double: int) -> None:
    maker = TripleMaker(single, double, pair.kind)
    stocks = pair.run(maker, maker.run, maker.run)
    seen = []
    for part in ((single // 2, double // 2), (single - single // 2, double - double // 2)):
        mine, theirs = (stock.take(*part) for stock in stocks)
        a, b, c = mine.a ^ theirs.a, mine.b ^ theirs.b, mine.c ^ theirs.c
        assert np.array_equal(a & b, c)
        assert a.size == part[0] + 2 * part[1]
        seen.append(b)
    assert 0.2 < np.concatenate(seen).mean() < 0.8


def test_blend(pair: Pair) -> None:
    x0, x1 = all_pairs(5)
    b0, b1, bit = bits_of(x0)
    operator = Blend(x0.size, 5, 19, pair.kind)
    found = run(pair, operator, (b0, x0, b1), (b1, x1, b0 & b1))
    expected = bit * reduce(x0 + x1, 5) + np.uint64(19) * (b1 ^ (b0 & b1))
    assert np.array_equal(reduce(found, 5), reduce(expected, 5))

"""The native core of ring-LWE equals plain Python integers bit for bit."""

from __future__ import annotations

from math import isqrt

import numpy as np
import plain_rlwe as plain
import pytest

from thinwire_private.ot.primitives import Prg, Words, native
from thinwire_private.rlwe.keys import (
    IMAGE,
    image_of_small,
    image_of_words,
    pack_wide,
    random_words,
    unpack_wide,
    wide_bytes,
)
from thinwire_private.rlwe.parameters import (
    DEGREE,
    ERROR_VARIANCE,
    MAX_ERROR,
    MAX_LOG_Q,
    PRIMES,
    STANDARD,
    RlweParameters,
    failure_bits,
)


@pytest.fixture
def prg() -> Prg:
    return Prg(b"ring-LWE of tests"[:16])


def ints(words: Words) -> list[int]:
    """Polynomials (2, N) as Python integers."""
    return [int(low) | int(high) << 64 for low, high in zip(*words, strict=True)]


def wide(values: list[int]) -> Words:
    mask = (1 << 64) - 1
    return np.array([[value & mask for value in values], [value >> 64 for value in values]], np.uint64)


def uniform(prg: Prg, k: int) -> list[int]:
    words = random_words(prg, 2 * DEGREE).reshape(2, DEGREE)
    return [value % (1 << k) for value in ints(words)]


def lifted(image: Words, k: int) -> list[int]:
    words = np.empty((2, DEGREE), np.uint64)
    native().rlwe.words_of_image(image, k, words.reshape(-1))
    return ints(words)


def small(prg: Prg, kind: str) -> tuple[list[int], Words]:
    random = random_words(prg, DEGREE)
    out = np.empty(DEGREE, np.int32)
    getattr(native().rlwe, kind)(random, out)
    assert out.tolist() == getattr(plain, kind)(random.tolist())
    return out.tolist(), image_of_small(out[None])[0]


def test_parameters_are_the_standards() -> None:
    assert STANDARD[DEGREE] == MAX_LOG_Q == 109
    assert ERROR_VARIANCE >= 3.19**2
    for prime in PRIMES:
        assert prime < 1 << 62
        assert (prime - 1) % (2 * DEGREE) == 0
        assert all(pow(base, prime - 1, prime) == 1 for base in (2, 3, 5, 7, 11))
    assert PRIMES[0] < PRIMES[1]


def test_errors_have_their_distribution(prg: Prg) -> None:
    draws = np.array([small(prg, "binomial")[0] for _ in range(40)])
    assert abs(draws.var() - ERROR_VARIANCE) < 0.2
    assert abs(draws.mean()) < 0.05
    assert np.abs(draws).max() <= MAX_ERROR
    signs = np.array([small(prg, "ternary")[0] for _ in range(10)])
    assert [abs(np.mean(signs == value) - 1 / 3) < 0.02 for value in (-1, 0, 1)] == [True] * 3


def test_products_are_exact_up_to_the_largest_coefficients(prg: Prg) -> None:
    a = uniform(prg, 109)
    a[:3] = [(1 << 109) - 1] * 3
    for b in (
        small(prg, "ternary")[0],
        [(-8, 7)[i % 2] for i in range(DEGREE)],
        [-1] * DEGREE,
        [0] * (DEGREE - 1) + [-(1 << 13)],
    ):
        accumulated = np.zeros((2, IMAGE), np.uint64)
        images = np.repeat(image_of_words(wide(a)[None]), 2, 0)
        factors = image_of_small(np.array([b], np.int32))
        native().rlwe.multiply_add(images.reshape(-1), factors.reshape(-1), accumulated.reshape(-1))
        expected = [value % (1 << 109) for value in plain.multiply(a, b)]
        assert lifted(accumulated[0], 109) == lifted(accumulated[1], 109) == expected


def test_many_terms_are_added_up(prg: Prg) -> None:
    terms = 17  # more than are added before a reduction
    words = random_words(prg, terms * 4 * DEGREE).reshape(terms, 2, 2, DEGREE) % np.uint64(1 << 63)
    words[:, :, 1] %= np.uint64(1 << 26)  # 90 bits
    factors = (random_words(prg, terms * DEGREE).reshape(terms, DEGREE) % np.uint64(15)).astype(np.int32) - 7
    images = image_of_words(words.reshape(2 * terms, 2, DEGREE))
    accumulated = np.zeros(2 * IMAGE, np.uint64)
    native().rlwe.multiply_add(images.reshape(-1), image_of_small(factors).reshape(-1), accumulated)
    for half in range(2):
        products = [plain.multiply(ints(words[t, half]), factors[t].tolist()) for t in range(terms)]
        expected = [sum(column) % (1 << 90) for column in zip(*products, strict=True)]
        assert lifted(accumulated[half * IMAGE :][:IMAGE], 90) == expected


@pytest.mark.parametrize(("k", "width"), [(92, 18), (109, 39), (66, 4)])
def test_encryption_answer_and_decryption(prg: Prg, k: int, width: int) -> None:
    f = k - width - 2
    s, image_s = small(prg, "ternary")
    a = uniform(prg, k)
    image_a = image_of_words(wide(a)[None])[0]
    message = random_words(prg, DEGREE) % np.uint64(1 << width)
    noise = random_words(prg, DEGREE)
    c0 = np.empty((2, DEGREE), np.uint64)
    native().rlwe.encrypt(image_s, image_a, noise, message, k, width, c0.reshape(-1))
    assert ints(c0) == plain.encrypt(s, a, noise.tolist(), message.tolist(), k, width)

    places = np.arange(5, DEGREE, 3, dtype=np.uint32)
    accumulated = np.concatenate([image_of_words(c0[None])[0], image_a])
    e2, flood = random_words(prg, DEGREE), random_words(prg, 2 * places.size)
    top = np.empty(DEGREE, np.uint64)
    share, low = np.empty((2, places.size), np.uint64)
    native().rlwe.answer(accumulated, e2, flood, places, k, width, f, top, share, low)
    floods = [int(x) | int(y) << 64 for x, y in flood.reshape(-1, 2)]
    expected = plain.answer(ints(c0), a, e2.tolist(), floods, places.tolist(), k, width, f)
    assert (top.tolist(), share.tolist(), low.tolist()) == expected

    mine, distance = np.empty(places.size, np.uint64), np.empty(places.size, np.int32)
    native().rlwe.decrypt(image_s, top, low, places, width, mine, distance)
    assert mine.tolist() == plain.decrypt(s, top.tolist(), low.tolist(), places.tolist(), width)
    assert np.array_equal((share + mine) % np.uint64(1 << width), message[places])
    assert np.abs(distance).max() < 256


@pytest.mark.parametrize("k", [60, 64, 65, 92, 109])
def test_polynomials_are_packed_to_the_bit(prg: Prg, k: int) -> None:
    words = np.stack([wide(uniform(prg, k)) for _ in range(3)])
    wire = pack_wide(words, k)
    assert len(wire) == wide_bytes(3, k) == 3 * DEGREE * k // 8
    assert np.array_equal(unpack_wide(memoryview(wire), 3, k), words)


def test_sizes_and_widths_are_checked(prg: Prg) -> None:
    words = random_words(prg, DEGREE)
    with pytest.raises(ValueError, match="whole polynomials"):
        native().rlwe.image_of_words(words, np.empty(IMAGE, np.uint64))
    places = np.array([DEGREE], np.uint32)
    one = np.empty(1, np.uint64)
    with pytest.raises(ValueError, match="outside of the polynomial"):
        native().rlwe.decrypt(np.zeros(IMAGE, np.uint64), words, one, places, 9, one, np.empty(1, np.int32))
    with pytest.raises(ValueError, match="out of range"):
        native().rlwe.decrypt(np.zeros(IMAGE, np.uint64), words, one, places, 40, one, np.empty(1, np.int32))


def test_no_parameters_where_none_are_secure() -> None:
    chosen = RlweParameters.choose(24, 4608 * 8, 512 * 49)
    assert chosen is not None
    assert chosen.k <= 109
    assert RlweParameters.choose(40, 8, 1) is None
    assert RlweParameters.choose(30, 8, 1 << 20) is None  # 30 + 40 + 20 + 18 + 2 bits


def test_failures_are_rarer_than_2_to_the_minus_40() -> None:
    outputs = 1 << 24  # of ResNet-50, generously
    usual = 2 * DEGREE // 3
    heavy = usual + 8 * isqrt(DEGREE * 2 // 9)  # more ones than any secret has
    assert failure_bits(heavy) - (outputs - 1).bit_length() > 60

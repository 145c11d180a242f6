"""A curious client cannot read weights from answers, and can as soon as either protection is left out.

The attacks are run on the bytes that the operator sends, or on more than it sends.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import plain_rlwe as plain
import pytest
from pair import Pair, both

from thinwire_private.ot.primitives import Prg, Words, native
from thinwire_private.protocols.rlwe_product import RlweProduct
from thinwire_private.rlwe.keys import (
    IMAGE,
    PublicKey,
    PublicPolynomials,
    SecretKey,
    image_of_small,
    image_of_words,
    random_words,
)
from thinwire_private.rlwe.packing import cheapest
from thinwire_private.rlwe.parameters import DEGREE, RlweParameters

WIDTH = 12
WEIGHTS = np.array([[[[5]], [[-8]], [[7]]]])  # one output of three channels, 1x1


def operator() -> RlweProduct:
    parameters = RlweParameters.choose(WIDTH, 3 * 8, 16)
    assert parameters is not None
    plan = cheapest((3, 4, 4), (1, 4, 4), (1, 1, 0), 1, parameters.k, parameters.l)
    return RlweProduct(plan, parameters)


def tops_seen(monkeypatch: pytest.MonkeyPatch, protected: bool) -> tuple[RlweProduct, list[int], list[int]]:
    """(operator, a, the top bits of d1 as the client receives them) of one run over a channel."""
    if not protected:
        monkeypatch.setattr(PublicKey, "zero", lambda self, prg: np.zeros(2 * IMAGE, np.uint64))
    pair, made = Pair("softspoken:8"), operator()
    secret = SecretKey(pair.client.prg)
    public = PublicKey(memoryview(secret.public()))
    factors = image_of_small(made.packing.factors(made.packing.taps(WEIGHTS), 0))
    seen: list[bytes] = []
    send = pair.client.channel.send
    pair.client.channel.send = lambda data: (seen.append(bytes(data)), send(data))[1]  # type: ignore[method-assign, func-returns-value]
    mask = pair.client.prg.ring(48, WIDTH).reshape(1, 3, 4, 4)
    both(
        lambda: made.answer(pair.server, public, lambda number: factors),
        lambda: made.ask(pair.client, secret, mask),
    )
    tops = pair.client.receive_ring(DEGREE, WIDTH + 9)
    words = Prg(seen[0]).take(16 * DEGREE).view(np.uint64).reshape(2, DEGREE)
    a = [(int(x) | int(y) << 64) % (1 << made.parameters.k) for x, y in words.T]
    return made, a, tops.tolist()


def solutions(made: RlweProduct, a: list[int], tops: list[int]) -> list[tuple[int, ...]]:
    """All weights of 4 bits for which d1 = a w fits the tops, but for an error of rounding."""
    k, bits = made.parameters.k, WIDTH + 9
    probe = [
        made.packing.factors(made.packing.taps(np.eye(3)[i].reshape(1, 3, 1, 1)), 0)[0] for i in range(3)
    ]
    parts = np.array([plain.multiply(a, one.tolist())[:8] for one in probe], dtype=object)
    found = []
    for guess in product(range(-8, 8), repeat=3):
        sums = sum(w * part for w, part in zip(guess, parts, strict=True)) % (1 << k)
        off = [(int(d) - (top << (k - bits))) % (1 << k) for d, top in zip(sums, tops, strict=False)]
        if all(min(o, (1 << k) - o) <= 1 << (k - bits) for o in off):
            found.append(guess)
    return found


def test_without_an_encryption_of_zero_the_client_reads_all_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    assert solutions(*tops_seen(monkeypatch, protected=False)) == [tuple(WEIGHTS.reshape(-1))]


def test_with_it_no_weights_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert solutions(*tops_seen(monkeypatch, protected=True)) == []


def noise_of_answer(flooded: bool) -> tuple[Words, np.ndarray]:
    """What a client that were sent all of d0 and d1 finds: its own errors, and the noise of the answer."""
    made, prg = operator(), Prg(b"noise attack 16b")
    p, plan = made.parameters, made.packing
    secret = SecretKey(prg)
    public = PublicKey(memoryview(secret.public()))
    image_a = PublicPolynomials(prg.take(16).tobytes(), p.k).take(1)
    noise, c0 = random_words(prg, DEGREE), np.empty((2, DEGREE), np.uint64)
    message = plan.messages(prg.ring(48, WIDTH).reshape(1, 3, 4, 4), 0)[0]
    native().rlwe.encrypt(secret.image, image_a[0], noise, message, p.k, p.l, c0.reshape(-1))
    inputs = np.concatenate([image_of_words(c0[None]), image_a])
    total = public.zero(prg)
    factor = image_of_small(plan.factors(plan.taps(WEIGHTS), 0))
    native().rlwe.multiply_add(inputs.reshape(-1), factor.reshape(-1), total)
    # d0 + d1 s, the server's errors (flood and e2) added in the clear: 2^(k-l) y + noise
    opened = np.concatenate([total[IMAGE:], np.zeros(IMAGE, np.uint64)])
    product_s = np.zeros(2 * IMAGE, np.uint64)
    native().rlwe.multiply_add(opened, secret.image, product_s)
    words = np.empty((2, 2, DEGREE), np.uint64)
    both_images = np.concatenate([total[:IMAGE], product_s[:IMAGE]])
    native().rlwe.words_of_image(both_images, p.k, words.reshape(-1))
    d0, d1s = ([int(x) | int(y) << 64 for x, y in part.T] for part in words)
    unit = 1 << (p.k - p.l)
    flood = [int.from_bytes(prg.take(16).tobytes(), "little") % (1 << p.f) for _ in range(DEGREE)]
    sums = [x + y + (f - (1 << (p.f - 1)) if flooded else 0) for x, y, f in zip(d0, d1s, flood, strict=True)]
    left = np.array([(value + unit // 2) % unit - unit // 2 for value in sums], dtype=float)
    return np.array(plain.binomial(noise.tolist()), dtype=float), left


def regressed(errors: np.ndarray, left: np.ndarray) -> np.ndarray:
    """Weights by least squares: the noise is a sum of the client's own errors, shifted by taps' places."""
    made = operator()
    probe = [
        made.packing.factors(made.packing.taps(np.eye(3)[i].reshape(1, 3, 1, 1)), 0)[0] for i in range(3)
    ]
    shifted = [np.array(plain.multiply(errors.astype(int).tolist(), one.tolist()), float) for one in probe]
    return np.linalg.lstsq(np.stack(shifted, 1), left, rcond=None)[0]


def test_without_flooding_the_noise_tells_the_weights() -> None:
    """Even behind an encryption of zero: its noise is small, and averages out over 4096 coefficients."""
    found = regressed(*noise_of_answer(flooded=False))
    assert np.abs(found - WEIGHTS.reshape(-1)).max() < 4


def test_with_flooding_it_tells_nothing() -> None:
    found = regressed(*noise_of_answer(flooded=True))
    assert np.abs(found).min() > 1e6  # the flood, regressed on the errors

"""Products by ring-LWE: shares add up to W r for every shape, bytes are as predicted, noise is small."""

from __future__ import annotations

import numpy as np
import pytest
from pair import Pair
from test_packing import SHAPES

from thinwire_private.net.nodes import Conv, Linear, Weighted, accumulator, activation, columns
from thinwire_private.ot.primitives import Words
from thinwire_private.protocols import rlwe_product
from thinwire_private.protocols.operator import encode, reduce
from thinwire_private.protocols.rlwe_product import FactorCache, RlweProduct
from thinwire_private.rlwe.keys import PublicKey, SecretKey


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair("softspoken:8")


@pytest.fixture(scope="module")
def keys(pair: Pair) -> tuple[PublicKey, SecretKey]:
    secret = SecretKey(pair.client.prg)
    return PublicKey(memoryview(secret.public())), secret


def conv(shape: tuple[int, ...], bits: int = 4) -> Conv:
    channels, height, width, outputs, kernel, stride, padding, _ = shape
    out = [(side + 2 * padding - kernel) // stride + 1 for side in (height, width)]
    half = 1 << (bits - 1)
    w = np.random.default_rng(3).integers(-half, half, (outputs, channels, kernel, kernel))
    w.reshape(-1)[:2] = [-half, half - 1][: w.size]
    taken, value = activation((channels, height, width), 6), accumulator((outputs, *out), 30)
    return Conv("conv", ("x",), (taken,), value, bits, w, None, kernel, stride, padding)


def multiplied(
    pair: Pair, keys: tuple[PublicKey, SecretKey], layer: Weighted, width: int, batch: int
) -> tuple[Words, Words]:
    """(the shares' sum, what it should be); messages as predicted."""
    product = RlweProduct.of(layer, width, batch)
    assert product is not None
    shape = layer.taken[0].shape if isinstance(layer, Conv) else (layer.taken[0].size, 1, 1)
    mask = pair.client.prg.ring(batch * layer.taken[0].size, width + 3).reshape(batch, *shape)
    factors = FactorCache().factors(layer, product.packing)

    def client(party):  # type: ignore[no-untyped-def]
        product.ask(party, keys[1], mask)
        return product.finish(party, keys[1])

    shares = pair.run(product, lambda party: product.answer(party, keys[0], factors), client)
    x = reduce(mask, width).astype(np.int64)
    flat = x.reshape(batch, -1, 1)
    if isinstance(layer, Conv):
        flat = columns(x, layer.kernel, layer.stride, layer.padding)
    right = layer.matrix() @ np.concatenate(list(flat), axis=1)
    return reduce(shares[0] + shares[1], width), encode(right, width).reshape(right.shape)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_shares_add_up(pair: Pair, keys: tuple[PublicKey, SecretKey], shape: tuple[int, ...]) -> None:
    found, right = multiplied(pair, keys, conv(shape), 18, shape[-1])
    assert np.array_equal(found, right)


@pytest.mark.parametrize(("width", "bits"), [(1, 2), (7, 3), (24, 8), (33, 12)])
def test_widths(pair: Pair, keys: tuple[PublicKey, SecretKey], width: int, bits: int) -> None:
    found, right = multiplied(pair, keys, conv((4, 6, 6, 4, 3, 1, 1, 1), bits), width, 1)
    assert np.array_equal(found, right)


def test_a_fully_connected_layer(pair: Pair, keys: tuple[PublicKey, SecretKey]) -> None:
    w = np.random.default_rng(5).integers(-8, 8, (30, 300))
    layer = Linear("fc", ("x",), (activation((3, 10, 10), 6),), accumulator((30,), 24), 4, w)
    found, right = multiplied(pair, keys, layer, 21, 3)
    assert np.array_equal(found, right)


def test_groups_of_many_blocks(
    pair: Pair, keys: tuple[PublicKey, SecretKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, size in (("BLOCK_BYTES", 1), ("ANSWERS", 3), ("CHUNK_BYTES", 100_000)):
        monkeypatch.setattr(rlwe_product, name, size)
    shape = (16, 16, 16, 9, 3, 1, 1, 4)
    found, right = multiplied(pair, keys, conv(shape), 18, 4)
    assert np.array_equal(found, right)


def test_noise_stays_within_what_the_argument_gives_it(
    pair: Pair, keys: tuple[PublicKey, SecretKey], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 256 (half a unit) the flood takes 64, rounding of c0 8, that of c1 15 by deviation."""
    worst: list[int] = []
    plain = rlwe_product.decrypt

    def noting(*arguments):  # type: ignore[no-untyped-def]
        share, distance = plain(*arguments)
        worst.append(int(np.abs(distance).max()))
        return share, distance

    monkeypatch.setattr(rlwe_product, "decrypt", noting)
    multiplied(pair, keys, conv((16, 32, 32, 16, 3, 1, 1, 1)), 18, 1)
    assert 64 < max(worst) < 64 + 8 + 9 * 15  # 16,384 outputs


def test_answers_do_not_show_which_weights_made_them(pair: Pair, keys: tuple[PublicKey, SecretKey]) -> None:
    """Byte values of answers for weights of all zeros and of all ones: the same even distribution."""
    layer = conv((4, 8, 8, 4, 3, 1, 1, 1))
    product = RlweProduct.of(layer, 18, 1)
    assert product is not None
    for weight in (np.zeros_like(layer.matrix()), np.ones_like(layer.matrix())):
        images = FactorCache().factors(
            Conv(**{**vars(layer), "weight": weight.reshape(4, 4, 3, 3)}), product.packing
        )
        counts = np.zeros(256)
        for _ in range(6):
            mask = pair.client.prg.ring(256, 18).reshape(1, 4, 8, 8)
            product.ask(pair.client, keys[1], mask)
            product.answer(pair.server, keys[0], images)
            for message in product.reply():
                wire = np.frombuffer(pair.client.channel.receive(message.num_bytes), np.uint8)
                counts += np.bincount(wire, minlength=256)
        expected = counts.sum() / 256
        assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * (2 * 255) ** 0.5


def test_the_cache_keeps_what_fits_and_no_more() -> None:
    layer = conv((16, 32, 32, 16, 3, 1, 1, 1))
    product = RlweProduct.of(layer, 18, 1)
    assert product is not None
    size = product.packing.num_inputs * 8 * 2 * 4096
    cache = FactorCache(2 * size)
    find = cache.factors(layer, product.packing)
    first = [find(number) for number in range(3)]
    again = [find(number) for number in range(3)]
    assert [a is b for a, b in zip(first, again, strict=True)] == [True, True, False]
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))

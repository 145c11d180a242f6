"""Packing: every convolution that the compiler accepts, as a product of polynomials."""

from __future__ import annotations

import numpy as np
import pytest

from thinwire_private.net.nodes import columns
from thinwire_private.ot.primitives import Words, native
from thinwire_private.rlwe.keys import IMAGE, image_of_small, image_of_words
from thinwire_private.rlwe.packing import Packing, cheapest
from thinwire_private.rlwe.parameters import DEGREE

# channels, height, width, outputs, kernel, stride, padding, batch
SHAPES = [
    (16, 32, 32, 16, 3, 1, 1, 1),
    (16, 32, 32, 32, 3, 2, 1, 1),
    (16, 32, 32, 32, 1, 2, 0, 1),
    (3, 9, 7, 5, 3, 1, 0, 2),
    (3, 9, 7, 5, 3, 2, 1, 3),
    (2, 8, 8, 3, 2, 2, 1, 2),
    (2, 8, 8, 3, 2, 1, 1, 2),
    (5, 1, 1, 7, 3, 1, 1, 4),
    (3, 112, 90, 2, 7, 2, 3, 1),
    (2, 70, 70, 3, 5, 1, 2, 1),
    (2, 7, 7, 3, 7, 1, 0, 2),
    (2, 11, 11, 3, 3, 3, 1, 2),
    (1, 10, 10, 1, 2, 4, 0, 1),
    (64, 1, 1, 10, 1, 1, 0, 1),
    (5000, 1, 1, 3, 1, 1, 0, 2),
    (1, 1, 1, 1, 1, 1, 0, 1),
    (70, 6, 6, 50, 3, 1, 1, 5),
]


def packing(shape: tuple[int, ...]) -> Packing:
    channels, height, width, outputs, kernel, stride, padding, batch = shape
    out = [(side + 2 * padding - kernel) // stride + 1 for side in (height, width)]
    return cheapest((channels, height, width), (outputs, *out), (kernel, stride, padding), batch, 90, 20)


def products(plan: Packing, x: Words, w: np.ndarray) -> np.ndarray:
    """All outputs (K, batch * H' * W') by the packing, in the clear."""
    taps, size = plan.taps(w), plan.rows.outputs * plan.columns.outputs
    found = np.full(plan.outputs * plan.batch * size, -1, np.int64)
    for group in range(plan.num_groups):
        words = np.zeros((plan.num_inputs, 2, DEGREE), np.uint64)
        words[:, 0] = plan.messages(x, group)
        images = np.repeat(image_of_words(words), 2, 0)
        for number in range(plan.num_outputs):
            total, out = np.zeros(2 * IMAGE, np.uint64), np.empty((2, DEGREE), np.uint64)
            factors = image_of_small(plan.factors(taps, number))
            native().rlwe.multiply_add(images.reshape(-1), factors.reshape(-1), total)
            native().rlwe.words_of_image(total[:IMAGE], 64, out.reshape(-1))
            places, targets = plan.answers(group, number)
            assert np.unique(places).size == places.size
            assert (found[targets] == -1).all()  # no output twice
            found[targets] = out[0].view(np.int64)[places]
    return found.reshape(plan.outputs, -1)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_outputs_are_those_of_the_convolution(shape: tuple[int, ...]) -> None:
    channels, height, width, outputs, kernel, stride, padding, batch = shape
    dice = np.random.default_rng(0)
    x = dice.integers(0, 1 << 10, (batch, channels, height, width), dtype=np.uint64)
    w = dice.integers(-8, 8, (outputs, channels, kernel, kernel))
    plan = packing(shape)
    assert plan.fits
    flat = np.concatenate(list(columns(x.astype(np.int64), kernel, stride, padding)), axis=1)
    assert np.array_equal(products(plan, x, w), w.reshape(outputs, -1) @ flat)


def test_a_grouped_convolution_is_one_with_zeros() -> None:
    dice = np.random.default_rng(1)
    x = dice.integers(0, 64, (1, 8, 6, 6), dtype=np.uint64)
    w = np.zeros((8, 8, 3, 3), np.int64)
    for channel in range(8):
        w[channel, channel] = dice.integers(-8, 8, (3, 3))
    flat = columns(x.astype(np.int64), 3, 1, 1)[0]
    assert np.array_equal(products(packing((8, 6, 6, 8, 3, 1, 1, 1)), x, w), w.reshape(8, -1) @ flat)


def test_gaps_are_shared() -> None:
    plan = packing(SHAPES[0])
    assert plan.per_input * plan.per_output == 3  # 33 * 33 places a channel, 3 of them in 4096
    assert plan.span == plan.per_input * 33 * 33


def test_pictures_of_a_batch_share_ciphertexts() -> None:
    one, five = packing((70, 6, 6, 50, 3, 1, 1, 1)), packing((70, 6, 6, 50, 3, 1, 1, 5))
    assert five.upload_bytes(90) + five.download_bytes(20) < 5 * (
        one.upload_bytes(90) + one.download_bytes(20)
    )

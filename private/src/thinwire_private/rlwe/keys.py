"""Keys of ring-LWE: the client's secret s, and what it gives the server to make encryptions of zero."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from thinwire_private.ot.primitives import SEED_BYTES, Prg, Words, native, pack, packed_bytes, unpack
from thinwire_private.rlwe.parameters import DEGREE, MAX_LOG_Q

IMAGE = 2 * DEGREE  # words of a transformed polynomial
_WORD = 64
Small = NDArray[np.int32]


def wide_bytes(count: int, k: int) -> int:
    """Bytes of `count` polynomials modulo 2^k."""
    return packed_bytes(count * DEGREE, min(k, _WORD)) + packed_bytes(count * DEGREE, max(k - _WORD, 0))


PUBLIC_KEY_BYTES = SEED_BYTES + wide_bytes(1, MAX_LOG_Q)


def pack_wide(words: Words, k: int) -> bytes:
    """Polynomials (n, 2, N): low words, then high ones, to the bit."""
    low = bytes(pack(words[:, 0], min(k, _WORD)))
    return low + bytes(pack(words[:, 1], k - _WORD)) if k > _WORD else low


def unpack_wide(wire: memoryview, count: int, k: int) -> Words:
    """Polynomials (n, 2, N) of a message."""
    words = np.zeros((count, 2, DEGREE), np.uint64)
    size = packed_bytes(count * DEGREE, min(k, _WORD))
    words[:, 0] = unpack(wire[:size], count * DEGREE, min(k, _WORD)).reshape(count, DEGREE)
    if k > _WORD:
        words[:, 1] = unpack(wire[size:], count * DEGREE, k - _WORD).reshape(count, DEGREE)
    return words


class PublicPolynomials:
    """Uniform polynomials a modulo 2^k from a seed: the half of fresh ciphertexts that is not sent."""

    def __init__(self, seed: bytes, k: int) -> None:
        self._prg, self._k = Prg(seed), k

    def take(self, count: int) -> Words:
        """The images of the next ones, (count, 2N)."""
        words = self._prg.take(16 * count * DEGREE).view(np.uint64).reshape(count, 2, DEGREE)
        mask = (1 << self._k) - 1
        words &= np.array([mask % (1 << _WORD), mask >> _WORD], np.uint64)[:, None]
        return image_of_words(words)


def image_of_words(words: Words) -> Words:
    """The transforms (n, 2N) of polynomials (n, 2, N)."""
    image = np.empty((len(words), IMAGE), np.uint64)
    native().rlwe.image_of_words(np.ascontiguousarray(words).reshape(-1), image.reshape(-1))
    return image


def image_of_small(coefficients: Small) -> Words:
    """The transforms (n, 2N) of polynomials (n, N) with small signed coefficients."""
    image = np.empty((len(coefficients), IMAGE), np.uint64)
    native().rlwe.image_of_small(coefficients.reshape(-1), image.reshape(-1))
    return image


def random_words(prg: Prg, count: int) -> Words:
    """Random 64-bit words."""
    words: Words = prg.take(8 * count).view(np.uint64)
    return words


def ternary(prg: Prg) -> Words:
    """The image of a polynomial with random coefficients -1, 0, 1."""
    coefficients = np.empty(DEGREE, np.int32)
    native().rlwe.ternary(random_words(prg, DEGREE), coefficients)
    image: Words = image_of_small(coefficients[None])[0]
    return image


class SecretKey:
    """The client's."""

    def __init__(self, prg: Prg) -> None:
        self._prg, self.image = prg, ternary(prg)

    def encrypt(self, image_a: Words, message: Words, k: int, width: int) -> Words:
        """c0 = -a s + e + 2^(k-l) message, (2, N)."""
        c0 = np.empty((2, DEGREE), np.uint64)
        noise = random_words(self._prg, DEGREE)
        native().rlwe.encrypt(self.image, image_a, noise, message, k, width, c0.reshape(-1))
        return c0

    def public(self) -> bytes:
        """The message that makes the server a PublicKey: the seed of a, and b = -a s + e modulo 2^109."""
        seed = self._prg.take(SEED_BYTES).tobytes()
        image_a = PublicPolynomials(seed, MAX_LOG_Q).take(1)[0]
        b = self.encrypt(image_a, np.zeros(DEGREE, np.uint64), MAX_LOG_Q, 1)
        return seed + pack_wide(b[None], MAX_LOG_Q)


class PublicKey:
    """The server's: (b, a) with b + a s small; reduced modulo a smaller power of two it is a key again."""

    def __init__(self, message: memoryview) -> None:
        image_a = PublicPolynomials(bytes(message[:SEED_BYTES]), MAX_LOG_Q).take(1)
        image_b = image_of_words(unpack_wide(message[SEED_BYTES:], 1, MAX_LOG_Q))
        self.images = np.concatenate([image_b, image_a])

    def zero(self, prg: Prg) -> Words:
        """u (b, a), flat images, u fresh and ternary: an encryption of zero, but for its errors."""
        images = np.zeros(2 * IMAGE, np.uint64)
        native().rlwe.multiply_add(self.images.reshape(-1), ternary(prg), images)
        return images

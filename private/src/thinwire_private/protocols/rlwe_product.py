"""RlweProduct: shares of W r by ring-LWE, r the client's mask; FactorCache: the transformed weights."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod

import numpy as np

from thinwire_private.message import CLIENT, SERVER, ProtocolMessage
from thinwire_private.net.nodes import Weighted
from thinwire_private.ot.primitives import SEED_BYTES, Words, native, packed_bytes
from thinwire_private.protocols.operator import Messages, Operator, Party
from thinwire_private.rlwe.keys import (
    IMAGE,
    PublicKey,
    PublicPolynomials,
    SecretKey,
    Small,
    image_of_small,
    image_of_words,
    pack_wide,
    random_words,
    unpack_wide,
    wide_bytes,
)
from thinwire_private.rlwe.packing import Packing, Places, kernels, packing_of
from thinwire_private.rlwe.parameters import DEGREE, LOW_BITS, TOP_BITS, RlweParameters

CHUNK_BYTES = 1 << 20  # of a message with ciphertexts
ANSWERS = 32  # in a message
BLOCK_BYTES = 128 << 20  # ciphertext images that the server holds at once
CACHE_BYTES = 512 << 20
Factors = Callable[[int], Words]  # the images (num_inputs, 2N) of an answer's factors


class FactorCache:
    """Transformed weights, by layer and packing, up to a limit of bytes; all sessions of a server share it.

    They depend on the weights alone. What does not fit is transformed anew for every query.
    """

    def __init__(self, limit_bytes: int = CACHE_BYTES) -> None:
        self._limit, self.used = limit_bytes, 0
        self._images: dict[tuple[str, Packing, int], Words] = {}
        self._lock = threading.Lock()

    def factors(self, layer: Weighted, packing: Packing) -> Factors:
        """The images of a layer's answers, by number."""
        taps: list[Small] = []

        def find(number: int) -> Words:
            key = layer.name, packing, number
            if (kept := self._images.get(key)) is not None:
                return kept
            if not taps:
                taps.append(packing.taps(kernels(layer)))
            made = image_of_small(packing.factors(taps[0], number))
            with self._lock:
                if key not in self._images and self.used + made.nbytes <= self._limit:
                    self._images[key] = made
                    self.used += made.nbytes
            return made

        return find

    def fill(self, layer: Weighted, packing: Packing, stop: Callable[[], bool]) -> bool:
        """Transform a layer's weights ahead; False if it was stopped or there is no more room."""
        find = self.factors(layer, packing)
        for number in range(packing.num_outputs):
            if stop() or self.used + packing.num_inputs * 8 * IMAGE > self._limit:
                return False
            find(number)
        return True


@dataclass(frozen=True)
class RlweProduct(Operator):
    """Shares (K, batch * H' * W') of W r modulo 2^l, r (batch, C, H, W) with the client.

    1. The client sends a seed, which stands for all a, and c0 = -a s + e + 2^(k-l) r of every polynomial.
    2. The server computes (d0, d1) = sum (c0, a) w for each answer and adds u (b, a), u fresh and ternary,
       and a fresh error to d1: whatever d1 was, it is now uniform to the client (RLWE).
    3. It adds the flood to d0: whatever noise W made in it is hidden to 2^-40 for the layer and query.
       Its share is the top l bits of d0. It sends the next 5 of the coefficients that are outputs, and the
       top l + 9 bits of d1.
    4. The client's share is what d0's 5 bits and d1 s give, rounded.

    Without u the client solves d1 = sum a w for w; without the flood it divides d0's noise by its own errors:
    tests/private/rlwe/test_attack.py does both.

    Cost: 4096 k bits per ciphertext, 4096 (l + 9) per answer, 5 per output.
    """

    packing: Packing
    parameters: RlweParameters

    @staticmethod
    def of(layer: Weighted, width: int, batch: int) -> RlweProduct | None:
        """The product of a layer modulo 2^width; None if no secure parameters have room for it."""
        d1, d2, d3 = layer.dims
        chosen = RlweParameters.choose(width, d2 << (layer.weight_bits - 1), d1 * d3 * batch)
        return None if chosen is None else RlweProduct(packing_of(layer, batch, chosen), chosen)

    def messages(self) -> Messages:
        return self.question() + self.reply()

    def question(self) -> Messages:
        """What the client sends."""
        chunks = (count for _ in range(self.packing.num_groups) for _, count in self._uploads())
        sizes = (SEED_BYTES, *(wide_bytes(count, self.parameters.k) for count in chunks))
        return tuple(ProtocolMessage(CLIENT, size) for size in sizes)

    def reply(self) -> Messages:
        """What the server sends."""
        return tuple(
            ProtocolMessage(SERVER, size)
            for pairs in self._replies()
            for size in (
                packed_bytes(len(pairs) * DEGREE, self._top_width),
                packed_bytes(sum(self.packing.num_places(*pair) for pair in pairs), LOW_BITS),
            )
        )

    def ask(self, party: Party, key: SecretKey, pictures: Words) -> None:
        """The client's ciphertexts of r (batch, C, H, W), in the ring of 2^l or a wider one."""
        k, width = self.parameters.k, self.parameters.l
        seed = party.prg.take(SEED_BYTES).tobytes()
        party.channel.send(seed)
        public, mask = PublicPolynomials(seed, k), np.uint64((1 << width) - 1)
        for group in range(self.packing.num_groups):
            messages = self.packing.messages(pictures, group) & mask
            for start, count in self._uploads():
                pairs = zip(public.take(count), messages[start : start + count], strict=True)
                sealed = [key.encrypt(image_a, message, k, width) for image_a, message in pairs]
                party.channel.send(pack_wide(np.stack(sealed), k))

    def answer(self, party: Party, key: PublicKey, factors: Factors) -> Words:
        """The server's share; reads the ciphertexts and sends the answers."""
        public = PublicPolynomials(bytes(party.channel.receive(SEED_BYTES)), self.parameters.k)
        out = np.empty(self._size, np.uint64)
        pending: list[tuple[Words, Words]] = []
        for block in self._blocks():
            ciphertexts = [self._received(party, public) for _ in block]
            for number in range(self.packing.num_outputs):
                images = factors(number)
                for group, inputs in zip(block, ciphertexts, strict=True):
                    places, targets = self.packing.answers(group, number)
                    top, out[targets], low = self._sealed(party, key, inputs, images, places)
                    pending.append((top, low))
                    if len(pending) == ANSWERS:
                        self._send(party, pending)
        self._send(party, pending)
        return out.reshape(self.packing.outputs, -1)

    def finish(self, party: Party, key: SecretKey) -> Words:
        """The client's share."""
        out = np.empty(self._size, np.uint64)
        for pairs in self._replies():
            tops = party.receive_ring(len(pairs) * DEGREE, self._top_width).reshape(-1, DEGREE)
            counts = [self.packing.num_places(*pair) for pair in pairs]
            lows = np.split(party.receive_ring(sum(counts), LOW_BITS), np.cumsum(counts)[:-1])
            for pair, top, low in zip(pairs, tops, lows, strict=True):
                places, targets = self.packing.answers(*pair)
                out[targets] = decrypt(key, top, low, places, self.parameters.l)[0]
        return out.reshape(self.packing.outputs, -1)

    @property
    def num_products(self) -> int:
        """Products of polynomials."""
        return self.packing.num_groups * self.packing.num_inputs * self.packing.num_outputs

    @property
    def _size(self) -> int:
        packing = self.packing
        return prod((packing.outputs, packing.batch, packing.rows.outputs, packing.columns.outputs))

    @property
    def _top_width(self) -> int:
        return self.parameters.l + TOP_BITS

    def _uploads(self) -> Iterator[tuple[int, int]]:
        """(first ciphertext, number) of each message of a group."""
        step = max(1, CHUNK_BYTES // wide_bytes(1, self.parameters.k))
        for start in range(0, self.packing.num_inputs, step):
            yield start, min(step, self.packing.num_inputs - start)

    def _blocks(self) -> Iterator[range]:
        """Groups whose ciphertexts are held at once."""
        step = max(1, BLOCK_BYTES // (self.packing.num_inputs * 2 * 8 * IMAGE))
        for start in range(0, self.packing.num_groups, step):
            yield range(start, min(self.packing.num_groups, start + step))

    def _replies(self) -> Iterator[list[tuple[int, int]]]:
        """(group, number) of the answers of each message, in order."""
        pairs: list[tuple[int, int]] = []
        for block in self._blocks():
            for number in range(self.packing.num_outputs):
                for group in block:
                    pairs.append((group, number))
                    if len(pairs) == ANSWERS:
                        yield pairs
                        pairs = []
        if pairs:
            yield pairs

    def _received(self, party: Party, public: PublicPolynomials) -> Words:
        """Images (num_inputs, 2, 2N) of the next group."""
        k = self.parameters.k
        images = np.empty((self.packing.num_inputs, 2, IMAGE), np.uint64)
        for start, count in self._uploads():
            c0 = unpack_wide(party.channel.receive(wide_bytes(count, k)), count, k)
            images[start : start + count, 0] = image_of_words(c0)
            images[start : start + count, 1] = public.take(count)
        return images

    def _sealed(
        self, party: Party, key: PublicKey, inputs: Words, images: Words, places: Places
    ) -> tuple[Words, Words, Words]:
        """(top, share, low) of one answer."""
        total = key.zero(party.prg)
        native().rlwe.multiply_add(inputs.reshape(-1), images.reshape(-1), total)
        top = np.empty(DEGREE, np.uint64)
        share, low = np.empty((2, places.size), np.uint64)
        error, flood = random_words(party.prg, DEGREE), random_words(party.prg, 2 * places.size)
        p = self.parameters
        native().rlwe.answer(total, error, flood, places, p.k, p.l, p.f, top, share, low)
        return top, share, low

    def _send(self, party: Party, pending: list[tuple[Words, Words]]) -> None:
        if pending:
            party.send_ring(np.concatenate([top for top, _ in pending]), self._top_width)
            party.send_ring(np.concatenate([low for _, low in pending]), LOW_BITS)
            pending.clear()


def decrypt(key: SecretKey, top: Words, low: Words, places: Places, width: int) -> tuple[Words, Small]:
    """The client's shares at these places; how far each was from the nearest integer, in 2^-9 (below 256)."""
    share, distance = np.empty(places.size, np.uint64), np.empty(places.size, np.int32)
    native().rlwe.decrypt(key.image, top, low, places, width, share, distance)
    return share, distance

"""Calls of every native kernel as thinwire makes them, of random sizes: what the fuzzer starts from.

A method of `Calls` is named after the kernel it calls (`ternary_add`) and gives that kernel's arguments. What
came over the network is the first of them in all decoders (DECODERS).
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

DECODERS = (
    "ternary_add",
    "ternary_decode_sum",
    "ternary_decode_own",
    "qsgd_add",
    "qsgd_decode_sum",
    "qsgd_decode_own",
    "sign_decode",
    "rangefloat_decode",
    "topk_scatter",
    "fourier_inverse",
    "hadamard_inverse",
    "turned_decode_sum",
    "products_product",
)
ENCODERS = (
    "ternary_scales",
    "ternary_encode",
    "qsgd_scales",
    "qsgd_encode",
    "sign_encode",
    "rangefloat_measure",
    "rangefloat_encode",
    "topk_select",
    "fourier_forward",
    "hadamard_forward",
    "turned_encode_ternary",
    "turned_encode_qsgd",
)
SPECIAL = (0.0, -0.0, 1.0, -1e-45, 3.4e38, np.inf, -np.inf, np.nan)
WINDOWED = 60_000  # groups: more than top-k adds at a time
LARGE = 1_100_000  # numbers: from 2^20 on rangefloat writes past the caches
Args = list[Any]


class Calls:
    """Arguments of good calls; `topk` is a native Topk, which makes places that are right."""

    def __init__(self, seed: int, topk: Any) -> None:
        self.random, self.topk = random.Random(seed), topk

    def integer(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def size(self, most: int = 1500) -> int:
        """Small more often than large: what is special happens at the ends of rows and granules."""
        return int(most ** self.random.random())

    def flag(self) -> bool:
        return self.random.random() < 0.5

    def raw(self, size: int, dtype: str = "u1") -> np.ndarray:
        """Any bits at all, in an allocation that ends where they end."""
        return np.frombuffer(self.random.randbytes(size * np.dtype(dtype).itemsize), dtype).copy()

    def payload(self, size: int, dtype: str = "u1") -> np.ndarray:
        """Any bits, or the same byte all over."""
        if self.random.random() < 0.8:
            return self.raw(size, dtype)
        byte = self.random.choice((0, 255, 85, 86, 170, 171))
        return np.full(size * np.dtype(dtype).itemsize, byte, "u1").view(dtype)

    def floats(self, size: int) -> np.ndarray:
        """Numbers like gradients, some of them special; or any bits."""
        if self.random.random() < 0.2:
            return self.raw(size, "f4")
        x = self.raw(size, "i4").astype("f4") * np.float32(2.0 ** self.integer(-60, 20))
        for _ in range(self.integer(0, 3) if size else 0):
            x[self.integer(0, size - 1)] = self.random.choice(SPECIAL)
        return x

    def room(self, size: int, dtype: str = "f4") -> np.ndarray:
        """Where results go, aligned for vectors or not, up to the end of an allocation."""
        before = self.integer(0, 16)
        return np.zeros(before + size, dtype)[before:]

    def segments(self, granule_rows: int) -> tuple[np.ndarray, int, int, int]:
        """A table, and how many numbers, rows and scales it speaks of."""
        table, offset, row, scale = [], 0, 0, 0
        for _ in range(self.integer(0 if self.random.random() < 0.02 else 1, 4)):
            numel, block = self.size() - self.integer(0, 1), 32 * self.integer(0, 9)
            start = 32 * self.integer(0, 20) if self.random.random() < 0.2 else 0
            offset += self.integer(0, 9)
            table += [offset, numel, row, scale, block, start]
            offset += numel
            row += -(-numel // (32 * granule_rows)) * granule_rows
            scale += -(-(start + numel) // block) + 1 if block else 1
        return np.array(table, "i8"), offset, row, scale

    def draws(self, count: int) -> np.ndarray:
        """Keys, or none: then levels are the nearest."""
        return self.raw(count if self.flag() else 0, "i4")

    def ternary_scales(self) -> Args:
        table, size, _, scales = self.segments(5)
        clip = self.random.choice((2.5, np.inf))
        return [self.floats(size), table, clip, self.flag(), self.room(scales, "i4"), self.room(scales)]

    def ternary_encode(self) -> Args:
        digits = self.integer(4, 5)
        table, size, rows, scales = self.segments(digits)
        keys, payload = self.draws(len(table) // 3), self.room(rows // digits * 32, "u1")
        return [self.floats(size), table, keys, self.floats(scales), self.floats(scales), digits, payload]

    def ternary_add(self) -> Args:
        world = self.integer(1, 90) if self.random.random() < 0.98 else self.integer(200, 400)
        digits, granules = self.integer(4, 5), self.size(30) - 1
        sum_digits = fitting(2 * world + 1)
        words = self.room(-(-granules * digits // sum_digits) * 32, "i4")
        return [self.payload(world * granules * 32), world, digits, sum_digits, words]

    def decode_sum(self, rows_of_granule: int, zero: int) -> Args:
        table, size, rows, scales = self.segments(rows_of_granule)
        shards, digits = self.integer(1, 4), fitting(2 * zero + 1)
        per_shard = -(-rows // shards)
        words = self.payload(shards * -(-per_shard // digits) * 32, "i4")
        return [words, shards, per_shard, zero, digits, table, self.floats(scales), self.room(size)]

    def ternary_decode_sum(self) -> Args:
        return self.decode_sum(5, self.size(300))

    def ternary_decode_own(self) -> Args:
        digits = self.integer(4, 5)
        table, size, rows, scales = self.segments(digits)
        return [self.payload(rows // digits * 32), digits, table, self.floats(scales), self.room(size)]

    def qsgd_scales(self) -> Args:
        table, size, _, scales = self.segments(8)
        return [self.floats(size), table, self.flag(), self.room(scales, "i4")]

    def qsgd_encode(self) -> Args:
        bits = self.integer(2, 8)
        table, size, rows, scales = self.segments(field_rows(bits))
        keys, payload = self.draws(len(table) // 3), self.room(rows * 4 * bits, "u1")
        return [self.floats(size), table, keys, self.floats(scales), bits, payload]

    def qsgd_add(self) -> Args:
        bits, world = self.integer(2, 8), self.integer(1, 20)
        rows = field_rows(bits) * self.integer(0, 4)
        digits = fitting(world * ((1 << bits) - 2) + 1)
        words = self.room(-(-rows // digits) * 32, "i4")
        return [self.payload(world * rows * 4 * bits), world, bits, digits, words]

    def qsgd_decode_sum(self) -> Args:
        return self.decode_sum(8, self.size(3000))

    def qsgd_decode_own(self) -> Args:
        bits, world = self.integer(2, 8), self.integer(1, 3)
        table, size, rows, scales = self.segments(field_rows(bits))
        payloads = self.payload(world * rows * 4 * bits)
        return [payloads, world, bits, table, self.floats(world * scales), self.room(size)]

    def sign_encode(self) -> Args:
        table, size, rows, scales = self.segments(32)
        low, high = self.room(scales), self.room(scales)
        return [self.floats(size), table, self.flag(), self.room(rows * 4, "u1"), low, high]

    def sign_decode(self) -> Args:
        table, size, rows, scales = self.segments(32)
        world = self.integer(1, 3)
        low, high = self.floats(world * scales), self.floats(world * scales)
        return [self.payload(world * rows * 4), world, table, low, high, self.room(size)]

    def spans(self) -> tuple[np.ndarray, int]:
        if self.random.random() < 0.0005:
            return np.array([0, LARGE], "i8"), LARGE
        sizes = [self.size() for _ in range(self.integer(1, 4))]
        starts = itertools.accumulate(sizes, initial=0)
        return np.array(list(itertools.chain(*zip(starts, sizes, strict=False))), "i8"), sum(sizes)

    def fits(self, count: int) -> np.ndarray:
        """Of both kinds: max|x| finite, or not."""
        words = [(self.integer(0, 2**31 - 1), self.integer(0, 22)) for _ in range(count)]
        return np.array(words, "i4").flatten()

    def rangefloat_measure(self) -> Args:
        table, size = self.spans()
        bits, first, count = self.integer(4, 16), self.integer(0, 9), self.integer(0, 9)
        words = self.room(len(table) // 2 * (count + 1), "i4")
        return [self.floats(size), table, bits, first, count, 0, words]

    def rangefloat_encode(self) -> Args:
        table, size = self.spans()
        bits, fits = self.integer(4, 16), self.fits(len(table) // 2)
        payload = self.room(128 * -(-(-(-size // 32) * bits) // 32), "u1")
        return [self.floats(size), table, fits, bits, payload, self.room(len(table), "i8")]

    def rangefloat_decode(self) -> Args:
        table, size = self.spans()
        bits, world = self.integer(4, 16), self.integer(1, 3)
        payloads = self.payload(world * 128 * -(-(-(-size // 32) * bits) // 32))
        return [payloads, world, table, self.fits(world * len(table) // 2), bits, 0.5, self.room(size)]

    def runs(self) -> tuple[np.ndarray, int, int, int]:
        """A table, and how many numbers, bytes of indices and values it speaks of."""
        table, offset, byte, value = [], 0, 0, 0
        for _ in range(self.integer(1, 3)):
            most = WINDOWED if self.random.random() < 0.01 else 1500
            group, chunk, count = self.integer(1, 2), self.size(most), self.integer(1, 3)
            k = min(self.size(chunk), chunk)
            low = 0 if k == chunk else self.integer(0, min(31, chunk.bit_length()))
            highest = (chunk - 1) >> low
            high = 0 if highest == 0 or k == chunk else chunk if low == 0 else highest + k
            high_byte = byte + -(-count * k * low // 8)
            table += [offset, chunk, count, k, low, byte, high_byte, value, group]
            offset += count * chunk * group
            byte = high_byte + -(-count * high // 8)
            value += count * k * group
        return np.array(table, "i8"), offset, byte, value

    def topk_select(self) -> Args:
        table, size, index_bytes, values = self.runs()
        return [self.floats(size), table, self.room(index_bytes, "u1"), self.room(values)]

    def topk_scatter(self) -> Args:
        """Places that `select` wrote, with a few bytes changed or none; or any bytes."""
        table, size, index_bytes, values = self.runs()
        world, factor = self.integer(1, 3), 0.5
        if self.random.random() < 0.2:
            payloads = self.payload(world * index_bytes)
            return [payloads, world, table, self.floats(world * values), factor, self.room(size)]
        places, chosen = np.zeros(index_bytes, "u1"), np.zeros(values, "f4")
        self.topk.select(self.floats(size), table, places, chosen)
        payloads = np.tile(places, world)
        for _ in range(self.integer(0, 2) if payloads.size else 0):
            payloads[self.integer(0, payloads.size - 1)] ^= 1 << self.integer(0, 7)
        return [payloads, world, table, np.tile(chosen, world), factor, self.room(size)]

    def turning(self) -> tuple[Args, int, int]:
        """The six tables of a transform, with any factors, and the numbers of a row and of its spectrum."""
        length = self.size(400)
        points = length if length % 2 else length // 2
        inner = points if radices_of(points) else 1 << (2 * points - 2).bit_length()
        radices = radices_of(inner)
        num_factors, n = 0, inner
        for radix in radices:
            n //= radix
            num_factors += (radix - 1) * (n - 1)
        pairs, chirp = (length + 1) // 2, inner != points
        counts = num_factors, 2 if length % 2 else 3 + points // 2, chirp * points, chirp * inner
        cosines = pairs if self.flag() else 0
        sizes = np.array([length, points, inner, *radices], "i8")
        tables = [self.raw(2 * count, "i4").astype("f4") / 2**31 for count in (*counts, cosines)]
        return [sizes, *tables], length, length if cosines else 2 * pairs

    def fourier_forward(self) -> Args:
        tables, length, width = self.turning()
        rows = self.integer(0, 20)
        x, y = self.floats(rows * length), self.room(rows * width)
        return [x.reshape(rows, length), *tables, y.reshape(rows, width)]

    def fourier_inverse(self) -> Args:
        tables, length, width = self.turning()
        rows = self.integer(0, 20)
        y, x = self.floats(rows * width), self.room(rows * length)
        return [y.reshape(rows, width), *tables, x.reshape(rows, length)]

    def rotation(self) -> tuple[Args, int, int]:
        """Runs, their keys and factors, the size of a rotation; and how many numbers lie on either side."""
        size = self.random.choice((1, 16, 32, 512, 4096))
        table, source, target, scale = [], 0, 0, 0
        for _ in range(self.integer(1, 3)):
            numel, block = self.size(9000) - 1, size * self.integer(0, 3)
            start = size * self.integer(0, 3)
            table += [source, numel, target, scale, block, start]
            source, target = source + numel + self.integer(0, 3), target + numel + self.integer(0, 3)
            scale += (start + numel) // block + 1 if block else 1
        keys = self.raw(len(table) // 3, "i4")
        return [np.array(table, "i8"), keys, self.floats(scale), size], source, target

    def hadamard_forward(self) -> Args:
        tables, source, target = self.rotation()
        return [self.floats(source), *tables, self.room(target)]

    def hadamard_inverse(self) -> Args:
        tables, source, target = self.rotation()
        return [self.floats(target), *tables, self.room(source)]

    def turned(self, granule_rows: int) -> tuple[Args, np.ndarray, int, int, int]:
        """Runs with keys and so on, a table of the same elements; how many numbers, rows and scales."""
        runs, size, _ = self.rotation()
        table, row = [], 0
        for scale, (_, numel, target, _, _, start) in enumerate(runs[0].reshape(-1, 6).tolist()):
            table += [target, numel, row, scale, 0, start]
            row += -(-numel // (32 * granule_rows)) * granule_rows
        return runs, np.array(table, "i8"), size, row, len(table) // 6

    def turned_encode_ternary(self) -> Args:
        digits = self.integer(4, 5)
        runs, table, size, rows, scales = self.turned(digits)
        payload = self.room(rows // digits * 32, "u1")
        return [self.floats(size), *runs, table, self.floats(scales), self.floats(scales), digits, payload]

    def turned_encode_qsgd(self) -> Args:
        bits = self.integer(2, 8)
        runs, table, size, rows, scales = self.turned(field_rows(bits))
        payload = self.room(rows * 4 * bits, "u1")
        return [self.floats(size), *runs, table, self.floats(scales), bits, payload]

    def turned_decode_sum(self) -> Args:
        runs, table, size, rows, scales = self.turned(5)
        zero, shards = self.size(300), self.integer(1, 4)
        digits, per_shard = fitting(2 * zero + 1), -(-rows // shards)
        words = self.payload(shards * -(-per_shard // digits) * 32, "i4")
        return [words, shards, per_shard, zero, digits, table, self.floats(scales), *runs, self.room(size)]

    def matrix(self, rows: int, columns: int) -> np.ndarray:
        """As it lies in memory, or transposed."""
        if self.flag():
            return self.floats(rows * columns).reshape(rows, columns)
        return self.floats(rows * columns).reshape(columns, rows).T

    def products_product(self) -> Args:
        rows, depth, columns = self.size(90), self.size(90), self.size(90)
        start = self.floats(columns if self.flag() else 0)
        c = self.room(rows * columns).reshape(rows, columns)
        return [self.matrix(rows, depth), self.matrix(depth, columns), start, c]


def radices_of(points: int) -> list[int]:
    """Radices whose product is `points`, or none if 2, 3 and 5 do not make it up."""

    def taken() -> Iterator[int]:
        rest = points
        for radix in (4, 2, 3, 5):
            while rest % radix == 0:
                yield radix
                rest //= radix

    found = list(taken())
    return found if np.prod(found, dtype=int) == points else []


def fitting(base: int) -> int:
    """Digits of a base in a 32-bit word."""
    return next(digits for digits in range(20, 0, -1) if base**digits <= 1 << 32)


def field_rows(bits: int) -> int:
    """Rows of a granule of fields."""
    return 32 // int(np.gcd(bits, 32))

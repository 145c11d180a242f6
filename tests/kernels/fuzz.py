"""Calls every native kernel with damaged tables, sizes and payloads; meant for a build with sanitizers.

    make sanitize
    python tests/kernels/fuzz.py FOLDER [--seconds 60] [--seed 0]

FOLDER holds the extension module. A call may work or raise ValueError or TypeError; a sanitizer ends the
process at anything else. Every kernel must have been called both ways, or the fuzzing itself is at fault.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

NASTY = (
    0,
    1,
    -1,
    7,
    31,
    33,
    65536,
    2**31 - 1,
    -(2**31),
    2**32,
    2**58,
    2**59,
    2**62,
    2**63 - 32,
    2**63 - 1,
    -(2**63),
)
FLOATS = (0.0, -0.0, 1.0, -1e-45, 3.4e38, np.inf, -np.inf, np.nan)
Args = list[Any]


class Calls:
    """Good calls of every kernel, of random sizes."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        return int(self.rng.integers(low, high + 1))

    def floats(self, size: int) -> np.ndarray:
        x = self.rng.standard_normal(size).astype(np.float32)
        if size:
            x[self.rng.integers(0, size, 3)] = self.rng.choice(FLOATS, 3)
        return x

    def raw(self, size: int, dtype: str = "u1") -> np.ndarray:
        return np.frombuffer(self.rng.bytes(size * np.dtype(dtype).itemsize), dtype).copy()

    def segments(self, granule_rows: int) -> tuple[np.ndarray, int, int, int]:
        """A table, and how many numbers, rows and scales it speaks of."""
        table, offset, row, scale = [], 0, 0, 0
        for _ in range(self.integer(1, 4)):
            numel, block = self.integer(1, 5000), 32 * self.integer(0, 9)
            offset += self.integer(0, 9)
            table += [offset, numel, row, scale, block, 0]
            offset += numel
            row += -(-numel // (32 * granule_rows)) * granule_rows
            scale += -(-numel // block) if block else 1
        return np.array(table, "i8"), offset, row, scale

    def ternary_scales(self) -> Args:
        table, size, _, scales = self.segments(5)
        return [self.floats(size), table, 2.5, False, np.zeros(scales, "i4"), np.zeros(scales, "f4")]

    def ternary_encode(self) -> Args:
        digits = self.integer(4, 5)
        table, size, rows, scales = self.segments(digits)
        keys, payload = self.raw(len(table) // 3, "i4"), np.zeros(rows // digits * 32, "u1")
        return [self.floats(size), table, keys, self.floats(scales), self.floats(scales), digits, payload]

    def ternary_add(self) -> Args:
        world, digits, granules = self.integer(1, 90), self.integer(4, 5), self.integer(0, 30)
        sum_digits = fitting(2 * world + 1)
        words = np.zeros(-(-granules * digits // sum_digits) * 32, "i4")
        return [self.raw(world * granules * 32), world, digits, sum_digits, words]

    def decode_sum(self, rows_of_granule: int, zero: int) -> Args:
        table, size, rows, scales = self.segments(rows_of_granule)
        shards, digits = self.integer(1, 4), fitting(2 * zero + 1)
        per_shard = -(-rows // shards)
        words = self.raw(shards * -(-per_shard // digits) * 32, "i4")
        x = np.zeros(size, "f4")
        if self.rng.random() < 0.2:  # sizes that multiply to 0, which is how many words there are
            words, shards, per_shard = words[:0], 1 << self.integer(50, 62), digits * self.integer(1, 4)
        return [words, shards, per_shard, zero, digits, table, self.floats(scales), x]

    def ternary_decode_sum(self) -> Args:
        return self.decode_sum(5, self.integer(1, 300))

    def ternary_decode_own(self) -> Args:
        digits = self.integer(4, 5)
        table, size, rows, scales = self.segments(digits)
        return [self.raw(rows // digits * 32), digits, table, self.floats(scales), np.zeros(size, "f4")]

    def qsgd_scales(self) -> Args:
        table, size, _, scales = self.segments(8)
        return [self.floats(size), table, bool(self.integer(0, 1)), np.zeros(scales, "i4")]

    def qsgd_encode(self) -> Args:
        bits = self.integer(2, 8)
        table, size, rows, scales = self.segments(field_rows(bits))
        payload = np.zeros(rows * 4 * bits, "u1")
        return [self.floats(size), table, self.raw(len(table) // 3, "i4"), self.floats(scales), bits, payload]

    def qsgd_add(self) -> Args:
        bits, world = self.integer(2, 8), self.integer(1, 20)
        rows = field_rows(bits) * self.integer(0, 4)
        digits = fitting(world * ((1 << bits) - 2) + 1)
        return [
            self.raw(world * rows * 4 * bits),
            world,
            bits,
            digits,
            np.zeros(-(-rows // digits) * 32, "i4"),
        ]

    def qsgd_decode_sum(self) -> Args:
        return self.decode_sum(8, self.integer(1, 3000))

    def qsgd_decode_own(self) -> Args:
        bits, world = self.integer(2, 8), self.integer(1, 3)
        table, size, rows, scales = self.segments(field_rows(bits))
        payloads, x = self.raw(world * rows * 4 * bits), np.zeros(size, "f4")
        return [payloads, world, bits, table, self.floats(world * scales), x]

    def sign_encode(self) -> Args:
        table, size, rows, scales = self.segments(32)
        values = (np.zeros(scales, "f4"), np.zeros(scales, "f4"))
        return [self.floats(size), table, bool(self.integer(0, 1)), np.zeros(rows * 4, "u1"), *values]

    def sign_decode(self) -> Args:
        table, size, rows, scales = self.segments(32)
        world = self.integer(1, 3)
        values = (self.floats(world * scales), self.floats(world * scales))
        return [self.raw(world * rows * 4), world, table, *values, np.zeros(size, "f4")]

    def spans(self) -> tuple[np.ndarray, int]:
        sizes = [self.integer(1, 4000) for _ in range(self.integer(1, 4))]
        starts = itertools.accumulate(sizes, initial=0)
        return np.array([n for pair in zip(starts, sizes, strict=False) for n in pair], "i8"), sum(sizes)

    def fits(self, count: int) -> np.ndarray:
        return self.rng.integers(0, [2**31 - 1, 23], (count, 2)).astype("i4").flatten()

    def rangefloat_measure(self) -> Args:
        table, size = self.spans()
        bits, first, count = self.integer(4, 16), self.integer(0, 9), self.integer(0, 9)
        words = np.zeros(len(table) // 2 * (count + 1), "i4")
        return [self.floats(size), table, bits, first, count, 0, words]

    def rangefloat_encode(self) -> Args:
        table, size = self.spans()
        bits, fits = self.integer(4, 16), self.fits(len(table) // 2)
        payload = np.zeros(128 * -(-(-(-size // 32) * bits) // 32), "u1")
        return [self.floats(size), table, fits, bits, payload, np.zeros(len(table), "i8")]

    def rangefloat_decode(self) -> Args:
        table, size = self.spans()
        bits, world = self.integer(4, 16), self.integer(1, 3)
        payloads = self.raw(world * 128 * -(-(-(-size // 32) * bits) // 32))
        return [payloads, world, table, self.fits(world * len(table) // 2), bits, 0.5, np.zeros(size, "f4")]

    def runs(self) -> tuple[np.ndarray, int, int, int]:
        """A table, and how many numbers, bytes of indices and values it speaks of."""
        table, offset, byte, value = [], 0, 0, 0
        for _ in range(self.integer(1, 3)):
            group, chunk, count = self.integer(1, 2), self.integer(1, 20_000), self.integer(1, 3)
            k = self.integer(1, chunk)
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
        return [self.floats(size), table, np.zeros(index_bytes, "u1"), np.zeros(values, "f4")]

    def topk_scatter(self) -> Args:
        """Places that select wrote, so that some calls are good; damage() changes them."""
        table, size, index_bytes, values = self.runs()
        indices, chosen = np.zeros(index_bytes, "u1"), np.zeros(values, "f4")
        self.topk.select(self.floats(size), table, indices, chosen)
        world = self.integer(1, 3)
        return [np.tile(indices, world), world, table, np.tile(chosen, world), 0.5, np.zeros(size, "f4")]

    topk: Any = None


def damage(rng: np.random.Generator, args: Args) -> None:
    """Changes one argument."""
    place = int(rng.integers(len(args)))
    value = args[place]
    if isinstance(value, np.ndarray) and value.size:
        if rng.random() < 0.4:
            args[place] = (
                value[: rng.integers(value.size)].copy() if rng.random() < 0.7 else np.tile(value, 2)
            )
        elif value.dtype == np.int64:
            value[rng.integers(value.size)] = NASTY[int(rng.integers(len(NASTY)))]
        else:
            value.view("u1")[rng.integers(value.nbytes, size=3)] = rng.integers(256, size=3)
    elif isinstance(value, int) and not isinstance(value, bool):
        args[place] = NASTY[int(rng.integers(len(NASTY)))]


def fitting(base: int) -> int:
    """Digits of a base in a 32-bit word."""
    return next(digits for digits in range(20, 0, -1) if base**digits <= 1 << 32)


def field_rows(bits: int) -> int:
    return 32 // int(np.gcd(bits, 32))


def load(folder: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("_native", next(folder.glob("_native*.so")))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fuzz(native: ModuleType, seconds: float, seed: int) -> Counter[tuple[str, str]]:
    calls, outcomes = Calls(seed), Counter[tuple[str, str]]()
    names = [name for name in vars(Calls) if "_" in name and name.split("_")[0].capitalize() in vars(native)]
    end = time.monotonic() + seconds
    for isa in itertools.cycle(native.instruction_sets()):
        calls.topk = native.Topk(isa)
        for name in names:
            family, method = name.split("_", 1)
            kernel: Callable[..., None] = getattr(getattr(native, family.capitalize())(isa), method)
            args: Args = getattr(calls, name)()
            for _ in range(calls.integer(0, 2)):
                damage(calls.rng, args)
            try:
                kernel(*args)
                outcomes[name, "worked"] += 1
            except (ValueError, TypeError):
                outcomes[name, "refused"] += 1
        if time.monotonic() > end:
            break
    lazy = [name for name in names if not (outcomes[name, "worked"] and outcomes[name, "refused"])]
    assert len(names) >= 15, names
    assert not lazy, f"called one way only: {lazy}"
    return outcomes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Fuzz the native kernels.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for (name, outcome), count in sorted(fuzz(load(options.folder), options.seconds, options.seed).items()):
        print(f"{name:20} {outcome:8} {count:8,}")

"""Top-k payloads, read in plain integers by what docs/reference/wire.md says of them."""

from __future__ import annotations

import json

import make
import numpy as np
import pytest

GOLDEN = json.loads(make.FILE.read_text())["codecs"]


def bits_from(payload: bytes, first_byte: int, count: int) -> list[int]:
    return [payload[first_byte + i // 8] >> (i % 8) & 1 for i in range(count)]


def low_bits_by_the_page(chunk: int, k: int) -> tuple[int, int]:
    """(l, bits of the high parts): the l with the fewest bits, of equal ones the smallest."""
    sizes = []
    for low in range((chunk - 1).bit_length() + 1):
        highest = (chunk - 1) >> low
        high = 0 if highest == 0 else chunk if low == 0 else highest + k
        sizes.append((k * low + high, low, high))
    return min(sizes)[1:]


def places(payload: bytes, runs: list[tuple[int, int, int]]) -> tuple[list[list[int]], int]:
    """The indices of every chunk of every run (chunk, count, k), and the bytes they take."""
    found, start = [], 0
    for chunk, count, k in runs:
        low, high = low_bits_by_the_page(chunk, k)
        low_stream = bits_from(payload, start, count * k * low)
        start += -(-count * k * low // 8)
        high_stream = bits_from(payload, start, count * high)
        start += -(-count * high // 8)
        for c in range(count):
            lows = [
                sum(bit << b for b, bit in enumerate(low_stream[(c * k + j) * low : (c * k + j + 1) * low]))
                for j in range(k)
            ]
            marks = [i for i, bit in enumerate(high_stream[c * high : (c + 1) * high]) if bit] or [0] * k
            parts = [mark - (j if low and high else 0) for j, mark in enumerate(marks)]
            found.append([part << low | own for part, own in zip(parts, lows, strict=True)])
    return found, start


@pytest.mark.parametrize(
    ("text", "runs", "wide"),
    [
        ("topk:0.1", [(161, 1, 16), (33, 1, 3), (1, 1, 1)], 4),
        ("topk:0.4,chunk=20 >> bf16", [(20, 8, 8), (1, 1, 1), (20, 1, 8), (13, 1, 5), (1, 1, 1)], 2),
    ],
)
def test_payloads_are_those_of_the_page(text: str, runs: list[tuple[int, int, int]], wide: int) -> None:
    for world in make.WORLDS:
        for rank, message in enumerate(GOLDEN[text][f"world {world}"]["payloads"]):
            payload = bytes.fromhex(message)
            x = make.gradient(rank, make.layout_of(make.TERNARY).numel).numpy()
            found, index_bytes = places(payload, runs)
            expected, chosen, start = [], [], 0
            for chunk, count, k in runs:
                for _ in range(count):
                    part = x[start : start + chunk]
                    kept = sorted(sorted(range(chunk), key=lambda i: (-abs(part[i]), i))[:k])
                    expected.append(kept)
                    chosen += [part[i] for i in kept]
                    start += chunk
            assert found == expected
            first = -(-index_bytes // 8) * 8
            assert not any(payload[index_bytes:first])
            raw = payload[first : first + wide * len(chosen)]
            stored = (
                np.frombuffer(raw, "<f4")
                if wide == 4
                else (np.frombuffer(raw, "<u2").astype(np.uint32) << 16).view(np.float32)
            )
            assert np.allclose(stored, chosen, rtol=0 if wide == 4 else 2**-8, atol=0)
            assert len(payload) == first + -(-wide * len(chosen) // 8) * 8
            assert not any(payload[first + wide * len(chosen) :])


def spectrum(x: np.ndarray) -> list[tuple[np.float32, np.float32]]:
    """The pairs of a chunk of at most four numbers: sums that no float32 rounds, times one that it does."""
    root = np.float32(np.sqrt(2.0))
    if len(x) == 1:
        return [(x[0], np.float32(0))]
    a, b, c, d = x
    return [((a + b + c + d) / 2, (a - b + c - d) / 2), ((a - c) / 2 * root, (d - b) / 2 * root)]


def test_frequencies_are_those_of_the_page() -> None:
    """Pairs of 33 and 1 numbers in chunks of 4; 30 % of them, rounded up, by their lengths."""
    for world in make.WORLDS:
        for rank, message in enumerate(GOLDEN["fft:0.7,chunk=4 >> dense"][f"world {world}"]["payloads"]):
            x = make.gradient(rank, make.layout_of(make.PAIRS).numel).numpy()
            runs, expected, stored = [], [], []
            for piece in make.layout_of(make.PAIRS).slices:
                chunks = [
                    x[first : min(first + 4, piece.stop)] for first in range(piece.start, piece.stop, 4)
                ]
                pairs = [pair for chunk in chunks for pair in spectrum(chunk)]
                k = len(pairs) - len(pairs) * 7 // 10
                lengths = [np.float32(np.sqrt(float(a) ** 2 + float(b) ** 2)) for a, b in pairs]
                kept = sorted(sorted(range(len(pairs)), key=lambda i: (-lengths[i], i))[:k])
                runs.append((len(pairs), 1, k))
                expected.append(kept)
                stored += [number for i in kept for number in pairs[i]]
            payload = bytes.fromhex(message)
            found, index_bytes = places(payload, [run for run in runs if run[0] > run[2]])
            assert found == [kept for kept, run in zip(expected, runs, strict=True) if run[0] > run[2]]
            first = -(-index_bytes // 8) * 8
            assert np.array_equal(np.frombuffer(payload[first : first + 4 * len(stored)], "<f4"), stored)
            assert len(payload) == first + -(-4 * len(stored) // 8) * 8

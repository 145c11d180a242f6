"""The bytes on the wire do not change unnoticed, and they are what docs/reference/wire.md says."""

from __future__ import annotations

import json
import math

import make
import numpy as np
import pytest
import torch

from thinwire.kernels import Kernels
from thinwire.plans.lane import WIRE_VERSION
from thinwire.tensors import Key

GOLDEN = json.loads(make.FILE.read_text())
MASK = 0xFFFFFFFF


def numbers(text: str, dtype: str) -> np.ndarray:
    return np.frombuffer(bytes.fromhex(text), dtype=dtype)


@pytest.mark.parametrize("world", make.WORLDS)
@pytest.mark.parametrize("text", make.CODECS)
def test_bytes_are_the_golden_ones(every_kernels: Kernels, text: str, world: int) -> None:
    """If this is meant to change: wire.md, WIRE_VERSION, then `python tests/golden/make.py`."""
    assert make.messages(text, world, every_kernels) == GOLDEN["codecs"][text][f"world {world}"]


def test_the_file_is_of_this_version_and_small() -> None:
    assert GOLDEN["wire version"] == WIRE_VERSION
    assert set(GOLDEN["codecs"]) == set(make.CODECS)
    assert make.FILE.stat().st_size < 100_000


def draw(g: float, s: float, bound: float, counter: int, k0: int, k1: int) -> int:
    """One trit as docs/reference/wire.md defines it, in plain integers and float32."""
    h = counter ^ k0
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & MASK
    h ^= k1
    h = ((h ^ (h >> 15)) * 0x846CA68B) & MASK
    h ^= h >> 16
    unit = np.nextafter(np.float32(s), np.float32(0)) * np.float32(2**-24)
    hit = np.float32(h >> 8) * unit < min(np.float32(abs(g)), np.float32(bound))
    return int(np.sign(g)) * int(hit)


def trits_by_the_page(rank: int, scales: np.ndarray, clip: float) -> list[np.ndarray]:
    """The trits of every tensor of the ternary layout."""
    layout = make.layout_of(make.TERNARY)
    x = make.gradient(rank, layout.numel).numpy()
    found = []
    for spec, piece, s in zip(layout.specs, layout.slices, scales, strict=True):
        sigma = x[piece].astype(np.float64).std()
        bound = float(np.float32(clip * sigma)) if sigma > 0 else math.inf
        k0, k1 = Key(0, make.STEP, rank).words(spec.name)
        found.append(np.array([draw(g, s, bound, c, k0, k1) for c, g in enumerate(x[piece])]))
    return found


def digits_of(trits: np.ndarray, per_word: int) -> np.ndarray:
    """Digit k of word j of a granule is element 32 k + j: (granules, digits, 32)."""
    padded = np.zeros(-(-len(trits) // (32 * per_word)) * 32 * per_word, dtype=np.int64)
    padded[: len(trits)] = trits
    return padded.reshape(-1, per_word, 32) + 1


@pytest.mark.parametrize(("text", "per_byte"), [("terngrad", 5), ("terngrad:wire=2bit", 4)])
def test_ternary_payloads_are_those_of_the_page(text: str, per_byte: int) -> None:
    for world in make.WORLDS:
        message = GOLDEN["codecs"][text][f"world {world}"]
        scales = numbers(message["agreed"], "<f4")
        for rank, payload in enumerate(message["payloads"]):
            expected = []
            for trits in trits_by_the_page(rank, scales, clip=2.5):
                digits = digits_of(trits, per_byte)
                radix = 3 if per_byte == 5 else 4
                value = sum(digits[:, k] * radix ** (per_byte - 1 - k) for k in range(per_byte))
                expected.append(value * 256 // 243 + 1 if per_byte == 5 else value)
            assert np.array_equal(np.concatenate(expected).flatten(), numbers(payload, "u1"))


@pytest.mark.parametrize(("world", "per_word"), [(2, 13), (4, 10)])
def test_sums_are_those_of_the_page(world: int, per_word: int) -> None:
    """Digits sum + N of base 2N + 1, stored as floor(v * 2^32 / B^D) + 1, little-endian."""
    message = GOLDEN["codecs"]["terngrad"][f"world {world}"]
    scales = numbers(message["agreed"], "<f4")
    by_rank = [trits_by_the_page(rank, scales, clip=2.5) for rank in range(world)]
    rows = np.concatenate(
        [
            np.sum([digits_of(trits, 5) for trits in tensors], axis=0).reshape(-1, 32)
            for tensors in zip(*by_rank, strict=True)
        ]
    )
    base = 2 * world + 1
    expected = []
    for first in range(0, len(rows), per_word):
        pack = rows[first : first + per_word]
        for lane in range(32):
            value = 0
            for k in range(per_word):
                value = value * base + (int(pack[k, lane]) if k < len(pack) else 0)
            expected.append((value << 32) // base**per_word + 1)
    assert numbers(message["sums"], "<u4").tolist() == expected


def test_own_scales_follow_the_trits() -> None:
    message = GOLDEN["codecs"]["terngrad:scales=own"]["world 2"]
    assert message["agreed"] == ""
    for rank, payload in enumerate(message["payloads"]):
        scales = numbers(payload, "u1")[-16:-4].view("<f4")  # padded to 8 bytes
        x = make.gradient(rank, make.layout_of(make.TERNARY).numel)
        for piece, scale in zip(make.layout_of(make.TERNARY).slices, scales, strict=True):
            sigma = x[piece].double().std(correction=0).item()
            limit = np.float32(2.5 * sigma) if sigma else np.inf
            assert scale == min(x[piece].abs().max().item(), limit)


@pytest.mark.parametrize(
    ("text", "dtype"), [("dense", torch.float32), ("fp16", torch.float16), ("bf16", torch.bfloat16)]
)
def test_floats_are_those_of_the_page(text: str, dtype: torch.dtype) -> None:
    """g 2^k / N, rounded; padded with zeros to 8 bytes; sums in rank order, rounded once. k is fp16's."""
    for world in make.WORLDS:
        message = GOLDEN["codecs"][text][f"world {world}"]
        shared = numbers(message["agreed"], "<f4")
        powers = [2.0 ** (14 - math.floor(math.log2(largest))) for largest in shared] or [1.0, 1.0]
        times = torch.tensor([powers[0]] * 9 + [powers[1]])
        total = torch.zeros(12)[: len(bytes.fromhex(message["sums"])) // dtype.itemsize]
        for rank, payload in enumerate(message["payloads"]):
            wire = torch.frombuffer(bytearray.fromhex(payload), dtype=dtype)
            assert torch.equal(wire[:10], (make.gradient(rank, 10) * times / world).to(dtype))
            assert not wire[10:].any()
            total = total + wire.float()
        sums = torch.frombuffer(bytearray.fromhex(message["sums"]), dtype=dtype)
        assert torch.equal(sums, total.to(dtype))

"""QSGD and sign payloads, made in plain integers and float32 by what docs/reference/wire.md says of them."""

from __future__ import annotations

import json
import math

import make
import numpy as np

from thinwire.tensors import Key, Spec

GOLDEN = json.loads(make.FILE.read_text())["codecs"]
LAYOUT = make.layout_of(make.FIELDS)
MASK = 0xFFFFFFFF
F32 = np.float32


def fields(codes: list[int], padding: int, bits: int) -> bytes:
    """Column j of a granule is one number, its words 32 words apart, the lowest first."""
    rows = 32 // math.gcd(bits, 32)
    padded = codes + [padding] * (-len(codes) % (32 * rows))
    words = []
    for first in range(0, len(padded), 32 * rows):
        granule = padded[first : first + 32 * rows]
        columns = [sum(granule[32 * k + j] << (bits * k) for k in range(rows)) for j in range(32)]
        words += [(column >> (32 * p)) & MASK for p in range(bits * rows // 32) for column in columns]
    return np.array(words, dtype="<u4").tobytes()


def random24(counter: int, k0: int, k1: int) -> int:
    h = counter ^ k0
    h = ((h ^ (h >> 16)) * 0x7FEB352D) & MASK
    h ^= k1
    h = ((h ^ (h >> 15)) * 0x846CA68B) & MASK
    return (h ^ (h >> 16)) >> 8


def level(g: np.float32, norm: np.float32, s: int, u: int) -> int:
    step = F32(norm / F32(s))
    below = min(int(F32(abs(g)) * (F32(1) / step)), s - 1)
    rest = F32(abs(g)) - F32(below) * step
    up = F32(u) * (np.nextafter(step, F32(0)) * F32(2**-24)) < rest
    return int(np.sign(g)) * (below + int(up))


def levels(x: np.ndarray, norms: np.ndarray, block: int, s: int, rank: int, spec: Spec) -> list[int]:
    k0, k1 = Key(0, make.STEP, rank).words(spec.name)
    return [level(g, norms[c // block], s, random24(c, k0, k1)) for c, g in enumerate(x)]


def ordered_sum(values: np.ndarray) -> float:
    """Element i into accumulator i mod 16, ascending; then folded in halves."""
    lanes = [0.0] * 16
    for i, value in enumerate(values.astype(np.float64)):
        lanes[i % 16] += float(value)
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [a + b for a, b in zip(lanes[:half], lanes[half:], strict=True)]
    return lanes[0]


def blocks(x: np.ndarray, block: int) -> list[np.ndarray]:
    return [x[first : first + block] for first in range(0, len(x), block)]


def tensors(rank: int) -> list[np.ndarray]:
    return [make.gradient(rank, LAYOUT.numel).numpy()[piece] for piece in LAYOUT.slices]


def test_qsgd_payloads_are_those_of_the_page() -> None:
    for world in make.WORLDS:
        message = GOLDEN["qsgd:4"][f"world {world}"]
        norms = np.frombuffer(bytes.fromhex(message["agreed"]), "<f4")
        expected = max(abs(tensors(rank)[0]).max() for rank in range(world))
        assert norms.tolist() == [expected]  # the tensor is shorter than a block of 512
        for rank, payload in enumerate(message["payloads"]):
            codes = [
                fields([code + 7 for code in levels(x, norms[i : i + 1], 512, 7, rank, spec)], 7, 4)
                for i, (x, spec) in enumerate(zip(tensors(rank), LAYOUT.specs, strict=True))
            ]
            assert b"".join(codes).hex() == payload


def test_qsgd_sums_are_those_of_the_page() -> None:
    """Digits 0 ... 14 N of base 14 N + 1, rows of all granules in order."""
    for world, per_word in ((2, 6), (4, 5)):
        message = GOLDEN["qsgd:4"][f"world {world}"]
        payloads = [np.frombuffer(bytes.fromhex(p), "<u4").reshape(-1, 32) for p in message["payloads"]]
        rows = [
            sum(payload[g] >> np.uint32(4 * k) & np.uint32(15) for payload in payloads).tolist()
            for g in range(len(payloads[0]))
            for k in range(8)
        ]
        rows += [[0] * 32] * (-len(rows) % per_word)
        base, expected = 14 * world + 1, []
        for first in range(0, len(rows), per_word):
            for j in range(32):
                value = 0
                for row in rows[first : first + per_word]:
                    value = value * base + row[j]
                expected.append((value << 32) // base**per_word + 1)
        assert np.frombuffer(bytes.fromhex(message["sums"]), "<u4").tolist() == expected


def test_own_norms_follow_the_codes() -> None:
    for rank, payload in enumerate(GOLDEN["qsgd:3,norm=l2,block=32,scales=own"]["world 4"]["payloads"]):
        codes, all_norms = [], []
        for x, spec in zip(tensors(rank), LAYOUT.specs, strict=True):
            norms = np.array(
                [math.sqrt(ordered_sum(b.astype(np.float64) ** 2)) for b in blocks(x, 32)], dtype="<f4"
            )
            codes.append(fields([code + 3 for code in levels(x, norms, 32, 3, rank, spec)], 3, 3))
            all_norms.append(norms.tobytes())
        assert (b"".join(codes) + b"".join(all_norms)).hex() == payload


def test_sign_payloads_are_those_of_the_page() -> None:
    for text, block in (("sign", 10**9), ("sign:values=scaled,block=64", 64)):
        for rank, payload in enumerate(GOLDEN[text]["world 4"]["payloads"]):
            bits, values = [], []
            for x in tensors(rank):
                bits.append(fields([int(g >= 0) for g in x], 1, 1))
                for part in blocks(x, block):
                    up, down = part[part >= 0], part[part < 0]
                    total_up = ordered_sum(np.where(part >= 0, part, 0))
                    total_down = ordered_sum(np.where(part >= 0, 0, part))
                    if text == "sign":
                        values.append(total_down / len(down) if len(down) else 0.0)
                        values.append(total_up / len(up) if len(up) else 0.0)
                    else:
                        values.append((total_up - total_down) / len(part))
            made = b"".join(bits) + np.array(values, dtype="<f4").tobytes()
            assert (made + bytes(-len(made) % 8)).hex() == payload

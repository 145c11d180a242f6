"""Range float payloads, made in plain integers by what docs/wire.md says of them."""

from __future__ import annotations

import json

import make
import numpy as np
import pytest

GOLDEN = json.loads(make.FILE.read_text())["codecs"]


def u(x: float) -> int:
    """The bit pattern of a float32."""
    return int(np.float32(x).view(np.uint32))


def number(pattern: int) -> float:
    return float(np.uint32(pattern).view(np.float32))


def code_by_the_page(x: float, largest: int, m: int, bits: int) -> tuple[int, float]:
    """The code of x, and the number it stands for."""
    positive, sh = 2 ** (bits - 1) - 1, 23 - m
    half = 2 ** (sh - 1)
    top = min((largest + half) >> sh, 0x7F7FFFFF >> sh)
    base = max(top - (positive - 1), 2**m)
    if top < base or u(abs(x)) < max((base << sh) - 2**23, 2**23):
        return 0, 0.0
    k = max((min(u(abs(x)), top << sh) + half) >> sh, base) - base + 1
    q = number((base + k - 1) << sh)
    return (k, q) if x > 0 else (positive + k, -q)


def error_by_the_page(x: np.ndarray, largest: int, m: int, bits: int) -> int:
    q = np.array([code_by_the_page(number, largest, m, bits)[1] for number in x])
    energy = (x.astype(np.float64) ** 2).sum()
    return u(((x - q) ** 2).sum() / energy) if energy else 0


def payload_by_the_page(codes: list[int], bits: int) -> bytes:
    rows = -(-len(codes) // 32)
    padded = codes + [0] * (32 * rows - len(codes))
    columns = [sum(padded[32 * k + j] << bits * k for k in range(rows)) for j in range(32)]
    words = [columns[j] >> 32 * p & 0xFFFFFFFF for p in range(-(-rows * bits // 32)) for j in range(32)]
    return np.array(words, dtype="<u4").tobytes()


def tensors(text: str, rank: int) -> list[np.ndarray]:
    layout = make.layout_of(make.CODECS[text])
    x = make.gradient(rank, layout.numel).numpy()
    return [x[piece] for piece in layout.slices]


@pytest.mark.parametrize("world", make.WORLDS)
def test_what_is_agreed_on_is_as_the_page_says(world: int) -> None:
    """Sums in another order than the page's may differ in the last bit of a float32."""
    words = np.frombuffer(bytes.fromhex(GOLDEN["rangefloat:4"][f"world {world}"]["agreed"]), "<i4").reshape(
        -1, 3
    )
    for i, own in enumerate(words):
        xs = [tensors("rangefloat:4", rank)[i] for rank in range(world)]
        assert own[0] == max(u(abs(x).max()) for x in xs)
        for m in (0, 1):
            expected = max(error_by_the_page(x, u(abs(x).max()), m, 4) for x in xs)
            assert abs(int(own[1 + m]) - expected) <= 1


@pytest.mark.parametrize("world", make.WORLDS)
@pytest.mark.parametrize(("text", "bits"), [("rangefloat:4", 4), ("rangefloat:9,mantissa=4,max=0.5", 9)])
def test_payloads_are_those_of_the_page(text: str, bits: int, world: int) -> None:
    message = GOLDEN[text][f"world {world}"]
    fits = [(u(0.5), 4)] * 2
    if text == "rangefloat:4":
        words = np.frombuffer(bytes.fromhex(message["agreed"]), "<i4").reshape(-1, 3)
        fits = [(int(own[0]), 0 if own[1] <= own[2] else 1) for own in words]
    else:
        assert message["agreed"] == ""
    for rank, payload in enumerate(message["payloads"]):
        codes = [
            code_by_the_page(float(x), *fit, bits)[0]
            for values, fit in zip(tensors(text, rank), fits, strict=True)
            for x in values
        ]
        assert payload_by_the_page(codes, bits).hex() == payload
    assert message["sums"] == "".join(message["payloads"])

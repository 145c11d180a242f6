"""Range float payloads, made in plain integers by what docs/reference/wire.md says of them."""

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


def fit_by_the_page(x: np.ndarray, bits: int) -> tuple[int, int]:
    """max|x| and, of the mantissas 0 and 1 that 4 bits allow, the one that errs less."""
    largest = u(abs(x).max())
    errors = [error_by_the_page(x, largest, m, bits) for m in (0, 1)]
    return largest, 0 if errors[0] <= errors[1] else 1


@pytest.mark.parametrize("world", make.WORLDS)
@pytest.mark.parametrize(("text", "bits"), [("rangefloat:4", 4), ("rangefloat:9,mantissa=4,max=0.5", 9)])
def test_payloads_are_those_of_the_page(text: str, bits: int, world: int) -> None:
    """The codes of all tensors, then the fit of each."""
    message = GOLDEN[text][f"world {world}"]
    assert message["agreed"] == ""
    for rank, payload in enumerate(message["payloads"]):
        given = (u(0.5), 4)
        fits = [fit_by_the_page(x, 4) if bits == 4 else given for x in tensors(text, rank)]
        codes = [
            code_by_the_page(float(x), *fit, bits)[0]
            for values, fit in zip(tensors(text, rank), fits, strict=True)
            for x in values
        ]
        words = np.array(fits, dtype="<i4").tobytes()
        assert (payload_by_the_page(codes, bits) + words).hex() == payload
    assert message["sums"] == "".join(message["payloads"])

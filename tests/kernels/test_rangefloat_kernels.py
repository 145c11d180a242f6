"""Native range float kernels give the bits of the reference, and refuse bad tables."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lanes import KINDS, SIZES, few, make_lane, tensor
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.sizes import stream_bytes

REFERENCE = backends()["reference"]
BITS = tuple(range(4, 17))
EVERYTHING = [(kind, size, gap) for kind in KINDS for size, gap in ((1, 0), (33, 1), (1161, 0))]
EVERY_SIZE = [("normal", size, size % 3) for size in SIZES]
LARGE = [("normal", 13_000, 1), ("tiny", 9001, 0), ("one outlier", 4097, 0)]

Tensors = list[tuple[str, int, int]]
shape = {
    "tensors": st.lists(tensor, max_size=8),
    "seed": st.integers(0, 2**31),
    "bits": st.sampled_from(BITS),
}


def lane_of(tensors: Tensors, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """A buffer, the table of the tensors in it that are not empty, and max|x| of each as a bit pattern."""
    lane = make_lane([t for t in tensors if t[1]], seed, 0, 4)
    return lane.x, lane.table.view(-1, 6)[:, :2].flatten().contiguous(), lane.largest


def measured(kernels: Kernels, x: Tensor, table: Tensor, bits: int, count: int, largest: int) -> Tensor:
    words = torch.full((table.numel() // 2 * (count + (largest == 0)),), -1, dtype=torch.int32)
    kernels.rangefloat.measure(x, table, bits, 1, count, largest, words)
    return words


@given(**shape, count=st.integers(0, 6), largest=st.sampled_from((0, 0, 0x3F800000, 0x00800000, 0x7F7FFFFF)))
@example(EVERYTHING, 0, 8, 5, 0)
@example(EVERYTHING, 0, 8, 5, 0x3F800000)
@example(EVERY_SIZE, 0, 16, 13, 0)
@example(LARGE, 0, 10, 6, 0)
def test_fits_are_measured_as_the_reference_does(
    compared: Kernels, tensors: Tensors, seed: int, bits: int, count: int, largest: int
) -> None:
    x, table, own = lane_of(few(compared, tensors), seed)
    found = measured(compared, x, table, bits, count, largest)
    assert same_bits(found, measured(REFERENCE, x, table, bits, count, largest))
    if largest == 0 and table.numel():
        assert torch.equal(found.view(-1, count + 1)[:, 0], own)


@given(
    **shape,
    mantissa=st.integers(0, 14),
    share=st.sampled_from((1.0, 1.7, 1e-3, 1e4)),
    world=st.sampled_from((1, 2, 3)),
)
@example(EVERYTHING, 0, 10, 5, 1.0, 3)
@example(EVERYTHING, 0, 7, 3, 1e-3, 3)
@example(EVERY_SIZE, 0, 9, 4, 1.0, 2)
@example(EVERY_SIZE, 0, 16, 2, 1.0, 2)
@example(EVERY_SIZE, 0, 4, 0, 1.7, 1)
@example(LARGE, 0, 8, 4, 1e-3, 3)
@example(LARGE, 0, 10, 5, 1.0, 3)
@example(LARGE, 0, 11, 5, 1.0, 3)
def test_coding_is_the_reference_bit_for_bit(
    compared: Kernels, tensors: Tensors, seed: int, bits: int, mantissa: int, share: float, world: int
) -> None:
    """`share` > 1: another rank had a larger maximum; < 1: a given maximum cuts numbers off."""
    x, table, own = lane_of(few(compared, tensors), seed)
    largest = (own.view(torch.float32) * share).view(torch.int32)
    fits = torch.stack([largest, torch.full_like(largest, min(mantissa, bits - 2))], dim=1).flatten()
    numel = int(table.view(-1, 2)[:, 1].sum())
    outcomes = []
    for kernels in (REFERENCE, compared):
        payload = torch.full((stream_bytes(numel, bits) + 8,), 0xAA, dtype=torch.uint8)
        lost = torch.full((fits.numel(),), -1)
        kernels.rangefloat.encode(x, table, fits, bits, payload, lost)
        one, several = torch.full_like(x, -12345.0), torch.full_like(x, -12345.0)
        kernels.rangefloat.decode(payload, 1, table, fits, bits, 1.0, one)
        other = payload.clone()
        other[: stream_bytes(numel, bits)] &= 0x77  # other codes
        payloads = torch.cat([payload, other, payload][:world])
        own_fits = torch.cat([fits, _other(fits), fits][:world])
        kernels.rangefloat.decode(payloads, world, table, own_fits, bits, 1 / world, several)
        outcomes.append((payload, lost, one, several))
    for expected, found in zip(*outcomes, strict=True):
        assert same_bits(found, expected)
    assert (outcomes[0][0][stream_bytes(numel, bits) :] == 0xAA).all()


def _other(fits: Tensor) -> Tensor:
    """Fits of another rank: half the range."""
    other = fits.clone()
    other[::2] = (other[::2] - (1 << 23)).clamp(min=0)
    return other


@pytest.mark.parametrize("bits", [8, 10, 13])
def test_large_results_past_the_caches(native: Kernels, bits: int) -> None:
    """More than a million numbers, at an aligned place and at one that is not."""
    n = 1_100_000
    x = torch.randn(n + 16, generator=torch.Generator().manual_seed(bits))
    for offset in (0, 3):
        table, fits = torch.tensor([offset, n]), torch.tensor([0x40A00000, 4], dtype=torch.int32)
        payload, lost = (
            torch.empty(stream_bytes(n, bits), dtype=torch.uint8),
            torch.zeros(2, dtype=torch.int64),
        )
        native.rangefloat.encode(x, table, fits, bits, payload, lost)
        results = []
        for kernels in (REFERENCE, native):
            results.append(torch.full_like(x, -12345.0))
            kernels.rangefloat.decode(payload.repeat(2), 2, table, fits.repeat(2), bits, 0.5, results[-1])
        assert same_bits(*results)


GOOD = [0, 320]


def encode(
    native: Kernels,
    table: list[int] = GOOD,
    bits: int = 8,
    payload: int = 384,
    fit: tuple[int, ...] = (1, 3),
    lost: int = 2,
) -> None:
    native.rangefloat.encode(
        torch.zeros(320),
        torch.tensor(table),
        torch.tensor(fit, dtype=torch.int32),
        bits,
        torch.zeros(payload, dtype=torch.uint8),
        torch.zeros(lost, dtype=torch.int64),
    )


def decode(
    native: Kernels, payloads: int = 384, count: int = 1, bits: int = 8, fit: tuple[int, ...] = (1, 3)
) -> None:
    native.rangefloat.decode(
        torch.zeros(payloads, dtype=torch.uint8),
        count,
        torch.tensor(GOOD),
        torch.tensor(fit, dtype=torch.int32),
        bits,
        1.0,
        torch.zeros(320),
    )


def measure(
    native: Kernels, words: int = 4, first: int = 2, count: int = 3, largest: int = 0, bits: int = 8
) -> None:
    native.rangefloat.measure(
        torch.zeros(320),
        torch.tensor(GOOD),
        bits,
        first,
        count,
        largest,
        torch.zeros(words, dtype=torch.int32),
    )


def test_good_calls_work(native: Kernels) -> None:
    encode(native)
    decode(native)
    decode(native, payloads=768, count=2, fit=(1, 3, 5, 2))
    measure(native)
    measure(native, words=3, largest=1)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"bits": 3}, "4 to 16"),
        ({"bits": 17}, "4 to 16"),
        ({"table": [0]}, "two columns"),
        ({"table": [0, 321]}, "outside the buffer"),
        ({"table": [1, 320]}, "outside the buffer"),
        ({"table": [-1, 320]}, "outside the buffer"),
        ({"table": [0, 0]}, "empty"),
        ({"table": [2**63 - 1, 1]}, "outside the buffer"),
        ({"table": [1, 2**63 - 1]}, "outside the buffer"),
        ({"payload": 383}, "too small"),
        ({"fit": (1, 3, 1)}, "two words a span"),
        ({"fit": (-1, 3)}, "bit pattern"),
        ({"fit": (1, 23)}, "0 to 22"),
        ({"fit": (1, -1)}, "0 to 22"),
        ({"lost": 3}, "two counts"),
    ],
)
def test_bad_encodings_raise(native: Kernels, wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        encode(native, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"bits": 3}, "4 to 16"),
        ({"payloads": 383}, "too small"),
        ({"payloads": 769, "count": 2}, "uneven"),
        ({"count": 0}, "uneven"),
        ({"count": 2}, "too small"),
        ({"fit": (1, 23)}, "0 to 22"),
    ],
)
def test_bad_decodings_raise(native: Kernels, wrong: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        decode(native, **wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"words": 3}, "wrong size"),
        ({"first": -1}, "0 to 22"),
        ({"first": 21}, "0 to 22"),
        ({"count": -1}, "0 to 22"),
        ({"largest": -1}, "bit pattern"),
        ({"bits": 17}, "4 to 16"),
    ],
)
def test_bad_measurements_raise(native: Kernels, wrong: dict[str, int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        measure(native, **wrong)

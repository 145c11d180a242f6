"""Native sign kernels give the bits of the reference, and refuse bad tables."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lanes import KINDS, SIZES, WIDE, Lane, few, make_lane, tensor
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.base import SignKernels
from thinwire.kernels.reference.bits import unpack_fields
from thinwire.kernels.sizes import field_granule_bytes, field_rows

REFERENCE = backends()["reference"].sign
EVERYTHING = [(kind, size, gap) for kind in KINDS for size, gap in ((1, 0), (33, 1), (161, 0), (1025, 3))]
EVERY_SIZE = [("normal", size, size % 3) for size in SIZES]
GOOD = [0, 320, 0, 0, 0, 0]  # offset, numel, row, scale, block, start


def encoded(kernels: SignKernels, lane: Lane, scaled: bool) -> tuple[Tensor, Tensor, Tensor]:
    payload = torch.full((lane.num_granules * field_granule_bytes(1),), 0xAA, dtype=torch.uint8)
    low, high = torch.full((lane.num_scales,), 777.0), torch.full((lane.num_scales,), 777.0)
    kernels.encode(lane.x, lane.table, scaled, payload, low, high)
    return payload, low, high


@given(
    tensors=st.lists(tensor, max_size=8),
    seed=st.integers(0, 2**31),
    block=st.sampled_from((0, 32, 64, 96, 2048)),
    scaled=st.booleans(),
    count=st.integers(1, 5),
)
@example(EVERYTHING, 0, 0, False, 3)
@example(EVERYTHING, 0, 32, True, 2)
@example(WIDE, 0, 0, False, 3)
@example(WIDE, 0, 96, True, 2)
@example(EVERY_SIZE, 0, 0, True, 1)
@example(EVERY_SIZE, 0, 96, False, 4)
def test_coding_is_the_reference_bit_for_bit(
    compared: Kernels, tensors: list[tuple[str, int, int]], seed: int, block: int, scaled: bool, count: int
) -> None:
    lane = make_lane(
        [t for t in few(compared, tensors) if t[1]], seed, block, field_rows(1)
    )  # coders leave empty ones out
    expected, found = encoded(REFERENCE, lane, scaled), encoded(compared.sign, lane, scaled)
    for a, b in zip(found, expected, strict=True):
        assert same_bits(a, b)
    payloads = torch.cat([expected[0]] * count)
    low, high = (torch.cat([value * (1 + rank) for rank in range(count)]) for value in expected[1:])
    results = []
    for kernels in (REFERENCE, compared.sign):
        x = lane.rubbish
        kernels.decode(payloads, count, lane.table, low, high, x)
        results.append(x)
    assert same_bits(*results)


def test_bits_and_values(kernels: Kernels) -> None:
    x = torch.tensor([1.0, -2.0, 0.0, -0.0, 3.0, -4.0])
    payload = torch.zeros(128, dtype=torch.uint8)
    low, high = torch.zeros(1), torch.zeros(1)
    table = torch.tensor([0, 6, 0, 0, 0, 0])
    kernels.sign.encode(x, table, False, payload, low, high)
    assert unpack_fields(payload, 1)[:6].tolist() == [1, 0, 1, 1, 1, 0]
    assert unpack_fields(payload, 1)[6:].all()
    assert (low.item(), high.item()) == (-3.0, 1.0)
    kernels.sign.encode(x, table, True, payload, low, high)
    assert high.item() == pytest.approx(10 / 6)
    assert low.item() == -high.item()


def test_bad_sizes_raise(native: Kernels) -> None:
    x, one = torch.zeros(320), torch.ones(1)

    def encode(table: list[int], payload: int = 128) -> None:
        bits = torch.zeros(payload, dtype=torch.uint8)
        native.sign.encode(x, torch.tensor(table), False, bits, one.clone(), one.clone())

    def decode(payload: int = 128, count: int = 1, low: int = 1, high: int = 1) -> None:
        bits = torch.zeros(payload, dtype=torch.uint8)
        native.sign.decode(bits, count, torch.tensor(GOOD), torch.ones(low), torch.ones(high), x.clone())

    encode(GOOD)
    decode()
    decode(256, 2, 2, 2)
    for table, sentence in (
        ([0, 321, 0, 0, 0, 0], "outside the buffer"),
        ([0, 320, 0, 1, 0, 0], "outside the table of scales"),
        ([0, 320, 32, 0, 0, 0], "rows lie outside the payload"),
        ([0, 320, 0, 0, 33, 0], "multiple of 32"),
    ):
        with pytest.raises(ValueError, match=sentence):
            encode(table)
    with pytest.raises(ValueError, match="rows lie outside the payload"):
        encode(GOOD, payload=127)
    for wrong, sentence in (
        ({"payload": 127}, "rows lie outside"),
        ({"count": 0}, "payloads: uneven"),
        ({"payload": 255, "count": 2}, "payloads: uneven"),
        ({"high": 2}, "values: uneven"),
        ({"payload": 256, "count": 2}, "values: uneven"),
        ({"low": 0, "high": 0}, "outside the table of scales"),
    ):
        with pytest.raises(ValueError, match=sentence):
            decode(**wrong)

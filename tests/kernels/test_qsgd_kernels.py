"""Native QSGD kernels give the bits of the reference, pack without loss, and refuse bad tables."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lanes import KINDS, ROW, SIZES, WIDE, Lane, few, make_lane, tensor
from torch import Tensor

from simulation import same_bits
from thinwire.codecs.levels import max_world
from thinwire.kernels import Kernels, backends
from thinwire.kernels.reference.bits import pack_fields, unpack_fields
from thinwire.kernels.sizes import digits_per_word, field_granule_bytes, field_rows

REFERENCE = backends()["reference"].qsgd
BITS = tuple(range(2, 9))
WORLDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 100)
EVERYTHING = [(kind, size, gap) for kind in KINDS for size, gap in ((1, 0), (33, 1), (161, 0))]
EVERY_SIZE = [("normal", size, size % 3) for size in SIZES]


def lane_of(bits: int, tensors: list[tuple[str, int, int]], seed: int, block: int, start: int = 0) -> Lane:
    return make_lane(tensors, seed, block, field_rows(bits), start)


shape = {
    "tensors": st.lists(tensor, max_size=8),
    "seed": st.integers(0, 2**31),
    "block": st.sampled_from((0, 32, 64, 512, 2048)),
}


def top(bits: int) -> int:
    return (1 << (bits - 1)) - 1


def payload_of(lane: Lane, bits: int) -> Tensor:
    return torch.full((lane.num_granules * field_granule_bytes(bits),), 0xAA, dtype=torch.uint8)


def norms(kernels: Kernels, lane: Lane, l2: bool) -> Tensor:
    bits = torch.full((lane.num_scales,), -1, dtype=torch.int32)
    kernels.qsgd.scales(lane.x, lane.table, l2, bits)
    return bits


def random_codes(bits: int, payloads: int, granules: int) -> Tensor:
    generator = torch.Generator().manual_seed(granules)
    shape = (payloads, granules * field_rows(bits) * ROW)
    return torch.randint(0, 2 * top(bits) + 1, shape, generator=generator)


@given(**shape, l2=st.booleans())
@example(EVERYTHING, 0, 0, True)
@example(EVERYTHING, 0, 32, False)
@example(WIDE, 0, 512, True)
@example(EVERY_SIZE, 0, 512, True)
@example(EVERY_SIZE, 0, 512, False)
def test_norms_are_the_reference_bit_for_bit(
    compared: Kernels, tensors: list[tuple[str, int, int]], seed: int, block: int, l2: bool
) -> None:
    lane = lane_of(4, few(compared, tensors), seed, block)
    assert same_bits(norms(compared, lane, l2), norms(backends()["reference"], lane, l2))


@given(
    **shape,
    bits=st.sampled_from(BITS),
    l2=st.booleans(),
    share=st.sampled_from((1.0, 1.5, 1e3)),
    start=st.sampled_from((0, 0, 32, 4096)),
)
@example(EVERYTHING, 0, 0, 2, False, 1.0, 0)
@example(EVERYTHING, 0, 32, 8, True, 1.0, 0)
@example(EVERYTHING, 0, 0, 3, True, 1.0, 0)
@example(WIDE, 0, 512, 4, False, 1.0, 0)
@example(WIDE, 0, 64, 3, False, 1.0, 32)
@example(EVERY_SIZE, 0, 512, 4, False, 1.0, 0)
@example(EVERY_SIZE, 0, 512, 5, False, 1.0, 0)
@example(EVERY_SIZE, 0, 512, 6, False, 1.0, 0)
@example(EVERY_SIZE, 0, 0, 7, False, 1.0, 2**32 - 64)  # counters wrap
def test_coding_is_the_reference_bit_for_bit(
    compared: Kernels,
    tensors: list[tuple[str, int, int]],
    seed: int,
    block: int,
    bits: int,
    l2: bool,
    share: float,
    start: int,
) -> None:
    """`share` > 1: another rank had a larger norm. With `start` each tensor is part of a longer one."""
    lane = lane_of(bits, few(compared, tensors), seed, block, start)
    scale = lane.largest.view(torch.float32)
    if l2 and not start:
        scale = norms(backends()["reference"], lane, l2).view(torch.float32)
    steps = scale * share / top(bits)
    expected, found = payload_of(lane, bits), payload_of(lane, bits)
    REFERENCE.encode(lane.x, lane.table, lane.keys, steps, bits, expected)
    compared.qsgd.encode(lane.x, lane.table, lane.keys, steps, bits, found)
    assert same_bits(found, expected)
    codes = unpack_fields(expected, bits)
    assert (codes <= 2 * top(bits)).all()
    several, all_steps = torch.cat([expected] * 3), torch.cat([steps, 0.1 * steps, 7 * steps])
    for payloads, own_steps, count in ((expected, steps, 1), (several, all_steps, 3)):
        here, there = lane.rubbish, lane.rubbish
        REFERENCE.decode_own(payloads, count, bits, lane.table, own_steps, there)
        compared.qsgd.decode_own(payloads, count, bits, lane.table, own_steps, here)
        assert same_bits(here, there)


@pytest.mark.parametrize("bits", range(1, 9))
def test_fields_are_packed_without_loss_and_without_a_spare_bit(bits: int) -> None:
    for granules in (0, 1, 5):
        shape = (granules * field_rows(bits) * ROW,)
        codes = torch.randint(0, 1 << bits, shape, generator=torch.Generator().manual_seed(bits))
        packed = pack_fields(codes, bits)
        assert 8 * packed.numel() == bits * codes.numel()
        assert torch.equal(unpack_fields(packed, bits), codes)


def assert_sums_exactly(kernels: Kernels, bits: int, codes: Tensor) -> Tensor:
    """Adds payloads, takes the sums apart again, compares with the sum of the codes; gives the words."""
    world, numel = codes.shape
    zero = world * top(bits)
    sum_digits = digits_per_word(2 * zero + 1)
    payloads = torch.cat([pack_fields(rank, bits) for rank in codes])
    rows = numel // ROW
    words = torch.full((-(-rows // sum_digits) * ROW,), 0x5A, dtype=torch.int32)
    kernels.qsgd.add(payloads, world, bits, sum_digits, words)
    x, table = torch.full((numel,), torch.nan), torch.tensor([0, numel, 0, 0, 0, 0])
    kernels.qsgd.decode_sum(words, 1, rows, zero, sum_digits, table, torch.ones(1), x)
    assert torch.equal(x, (codes.sum(0) - zero).float())
    return words


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("world", WORLDS)
def test_sums_are_exact_and_the_reference_bit_for_bit(compared: Kernels, bits: int, world: int) -> None:
    interpreted = compared.name == "triton"
    if interpreted and world not in (1, 3, 9):
        pytest.skip("Triton's interpreter would take minutes")
    for granules in (1,) if world >= 100 or interpreted else (1, 3, 13):
        codes = random_codes(bits, world, granules)
        words = assert_sums_exactly(compared, bits, codes)
        assert same_bits(words, assert_sums_exactly(backends()["reference"], bits, codes))


@pytest.mark.parametrize("bits", BITS)
def test_extreme_sums_fit_their_words(kernels: Kernels, bits: int) -> None:
    """All ranks at the lowest level, all at the highest, and the two beside each other."""
    numel = 2 * field_rows(bits) * ROW
    for world in (1, 2, 9, 100):
        codes = torch.zeros(world, numel, dtype=torch.int64)
        codes[:, numel // 4 : numel // 2] = 2 * top(bits)
        codes[:, numel // 2 :: 2] = 2 * top(bits)
        assert_sums_exactly(kernels, bits, codes)


def test_sums_of_the_largest_world_are_exact(native: Kernels) -> None:
    codes = torch.full((max_world(top(8)), field_rows(8) * ROW), 2 * top(8))
    codes[:, ::3] = 1
    codes[0, ::5] = 0
    assert_sums_exactly(native, 8, codes)


@given(**shape, bits=st.sampled_from(BITS), world=st.sampled_from(WORLDS), num_shards=st.integers(1, 9))
@example(WIDE, 0, 512, 4, 4, 4)
@example(EVERY_SIZE, 0, 512, 4, 4, 4)
@example(EVERY_SIZE, 0, 64, 3, 3, 5)
def test_decoding_sums_is_the_reference_bit_for_bit(
    compared: Kernels,
    tensors: list[tuple[str, int, int]],
    seed: int,
    block: int,
    bits: int,
    world: int,
    num_shards: int,
) -> None:
    lane = lane_of(bits, few(compared, tensors), seed, block)
    rows_per_shard, zero = -(-lane.num_granules // num_shards) * field_rows(bits), world * top(bits)
    sum_digits = digits_per_word(2 * zero + 1)
    generator = torch.Generator().manual_seed(seed)
    count = num_shards * -(-rows_per_shard // sum_digits) * ROW
    words = torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32)
    steps = torch.randn(lane.num_scales, generator=generator)
    results = []
    for kernels in (REFERENCE, compared.qsgd):
        x = lane.rubbish
        kernels.decode_sum(words, num_shards, rows_per_shard, zero, sum_digits, lane.table, steps, x)
        results.append(x)
    assert same_bits(*results)


GOOD = [0, 320, 0, 0, 0, 0]  # offset, numel, row, scale, block, start


def encode(native: Kernels, table: list[int], bits: int = 4, payload: int = 256, keys: int = 2) -> None:
    native.qsgd.encode(
        torch.zeros(320),
        torch.tensor(table),
        torch.zeros(keys, dtype=torch.int32),
        torch.ones(1),
        bits,
        torch.zeros(payload, dtype=torch.uint8),
    )


def decode_own(native: Kernels, payload: int = 256, count: int = 1, steps: int = 1, bits: int = 4) -> None:
    native.qsgd.decode_own(
        torch.zeros(payload, dtype=torch.uint8),
        count,
        bits,
        torch.tensor(GOOD),
        torch.ones(steps),
        torch.zeros(320),
    )


def decode_sum(native: Kernels, words: int = 32, rows: int = 10, zero: int = 28, digits: int = 5) -> None:
    native.qsgd.decode_sum(
        torch.zeros(words, dtype=torch.int32),
        1,
        rows,
        zero,
        digits,
        torch.tensor(GOOD),
        torch.ones(1),
        torch.zeros(320),
    )


def test_bad_sizes_raise(native: Kernels) -> None:
    encode(native, GOOD)
    decode_own(native)
    decode_own(native, payload=512, count=2, steps=2)
    decode_sum(native, words=64)
    for bits in (-1, 0, 1, 9, 32):
        with pytest.raises(ValueError, match="2 to 8"):
            encode(native, GOOD, bits=bits)
        with pytest.raises(ValueError, match="2 to 8"):
            decode_own(native, bits=bits)
    with pytest.raises(ValueError, match="rows lie outside the payload"):
        encode(native, GOOD, payload=255)
    with pytest.raises(ValueError, match="two words a segment"):
        encode(native, GOOD, keys=3)
    with pytest.raises(ValueError, match="rows lie outside the payload"):
        decode_own(native, payload=128)
    with pytest.raises(ValueError, match="uneven"):
        decode_own(native, payload=257, count=2, steps=2)
    with pytest.raises(ValueError, match="steps: uneven"):
        decode_own(native, payload=512, count=2)
    with pytest.raises(ValueError, match="uneven"):
        decode_own(native, count=0)
    with pytest.raises(ValueError, match="outside the table of scales"):
        encode(native, [0, 320, 0, 1, 0, 0])
    with pytest.raises(ValueError, match="outside the buffer"):
        encode(native, [1, 320, 0, 0, 0, 0])


def test_bad_sums_raise(native: Kernels) -> None:
    payloads = torch.zeros(4 * 256, dtype=torch.uint8)
    words = torch.zeros(128, dtype=torch.int32)
    native.qsgd.add(payloads, 4, 4, 5, words)
    for count, bits, digits, sentence in (
        (4, 4, 3, "wrong size"),
        (3, 4, 5, "uneven"),
        (0, 4, 5, "sum width"),
        (4, 4, 6, "sum width"),  # 57^6 > 2^32
        (259, 8, 1, "sum width"),  # beyond 65535
        (4, 9, 5, "2 to 8"),
    ):
        with pytest.raises(ValueError, match=sentence):
            native.qsgd.add(payloads, count, bits, digits, words)
    for wrong in ({"words": 32}, {"words": 96}):
        with pytest.raises(ValueError, match="wrong size"):
            decode_sum(native, **wrong)
    for wrong in ({"zero": 0}, {"zero": 32768, "digits": 1}, {"digits": 6}, {"digits": 0}):
        with pytest.raises(ValueError, match="sum width"):
            decode_sum(native, **wrong)
    with pytest.raises(ValueError, match="rows lie outside"):
        decode_sum(native, rows=5)

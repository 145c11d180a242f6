"""Native ternary kernels give the bits of the reference, and both give the words of wire.md."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lanes import KINDS, ROW, SIZES, WIDE, Lane, clips, lanes, make_lane, parts, small, without_first
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.base import TernaryKernels
from thinwire.kernels.sizes import digits_per_word

REFERENCE = backends()["reference"].ternary
WORLDS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 100, 128, 1000)
EVERYTHING = [(kind, size, gap) for kind in KINDS for size, gap in ((1, 0), (33, 1), (161, 0))]
EVERY_SIZE = [("normal", size, size % 3) for size in SIZES]
SEVERAL = [("normal", 1009, 0), ("normal", 0, 64), ("nan", 128, 64), ("denormals", 160, 7), ("normal", 0, 0)]


def measured(
    kernels: TernaryKernels, lane: Lane, clip: float, scaler_is_bound: bool
) -> tuple[Tensor, Tensor]:
    bits, bounds = torch.full((lane.num_scales,), -1, dtype=torch.int32), torch.full((lane.num_scales,), -1.0)
    kernels.scales(lane.x, lane.table, clip, scaler_is_bound, bits, bounds)
    return bits, bounds


def encoded(kernels: TernaryKernels, lane: Lane, scale: Tensor, bounds: Tensor) -> Tensor:
    payload = lane.payload
    kernels.encode(lane.x, lane.table, lane.keys, scale, bounds, lane.digits, payload)
    return payload


def skip_large(kernels: Kernels, world: int) -> None:
    if kernels.name == "triton" and world not in (1, 3, 9):
        pytest.skip("Triton's interpreter would take minutes")


def random_trits(num_payloads: int, granules: int, digits: int, seed: int) -> tuple[Tensor, Tensor]:
    """Trits 0, 1, 2 by (payload, granule, digit, byte), and the payloads made of them by the definition."""
    generator = torch.Generator().manual_seed(seed)
    trits = torch.randint(0, 3, (num_payloads, granules, digits, ROW), generator=generator)
    radix = 3 if digits == 5 else 4
    value = sum(trits[:, :, k] * radix ** (digits - 1 - k) for k in range(digits))
    stored = value * 256 // 243 + 1 if digits == 5 else value
    return trits, stored.to(torch.uint8).reshape(num_payloads, -1)


@given(lane=lanes, clip=clips, scaler_is_bound=st.booleans())
@example(make_lane(EVERYTHING, 0, 0, 5), 2.5, False)
@example(make_lane(EVERYTHING, 0, 32, 5), 2.5, True)
@example(make_lane(EVERY_SIZE, 0, 0, 4), 2.5, False)
@example(make_lane(EVERY_SIZE, 0, 2048, 5), float("inf"), False)
@example(make_lane(WIDE, 0, 0, 5), 2.5, False)
@example(without_first(make_lane(SEVERAL, 297, 64, 4)), 2.5, True)
def test_scales_are_the_reference_bit_for_bit(
    compared: Kernels, lane: Lane, clip: float, scaler_is_bound: bool
) -> None:
    lane = small(compared, lane)
    expected = measured(REFERENCE, lane, clip, scaler_is_bound)
    found = measured(compared.ternary, lane, clip, scaler_is_bound)
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


def assert_coded_alike(native: Kernels, lane: Lane, scale: Tensor, bounds: Tensor) -> None:
    payload = encoded(REFERENCE, lane, scale, bounds)
    assert same_bits(encoded(native.ternary, lane, scale, bounds), payload)
    expected, found = lane.rubbish, lane.rubbish
    REFERENCE.decode_own(payload, lane.digits, lane.table, scale, expected)
    native.ternary.decode_own(payload, lane.digits, lane.table, scale, found)
    assert same_bits(found, expected)


@given(lane=lanes, clip=clips, scaler_is_bound=st.booleans(), share=st.sampled_from((1.0, 1.5, 100.0)))
@example(make_lane(EVERYTHING, 0, 0, 5), 2.5, False, 1.0)
@example(make_lane(EVERYTHING, 0, 32, 4), 2.5, True, 1.0)
@example(make_lane(EVERY_SIZE, 0, 0, 5), 2.5, False, 1.0)
@example(make_lane(EVERY_SIZE, 0, 0, 4), float("inf"), False, 1.0)
@example(make_lane(WIDE, 0, 0, 5), 2.5, False, 1.0)
@example(make_lane(WIDE, 0, 64, 4), 2.5, False, 1.0)
@example(without_first(make_lane(SEVERAL, 297, 64, 4)), 2.5, True, 1.0)
@example(without_first(make_lane(SEVERAL, 0, 0, 4)), float("inf"), False, 1.0)
def test_encoding_and_decoding_are_the_reference_bit_for_bit(
    compared: Kernels, lane: Lane, clip: float, scaler_is_bound: bool, share: float
) -> None:
    """`share` > 1: another rank had a larger scale."""
    lane = small(compared, lane)
    bits, bounds = measured(REFERENCE, lane, clip, scaler_is_bound)
    assert_coded_alike(compared, lane, bits.view(torch.float32) * share, bounds)


@given(lane=parts, bound=st.sampled_from((0.3, float("inf"))))
@example(make_lane(EVERYTHING, 0, 0, 4, start=32), 0.3)
@example(make_lane(EVERY_SIZE, 0, 64, 5, start=96), float("inf"))
@example(make_lane(EVERY_SIZE, 0, 0, 5, start=2**32 - 64), float("inf"))  # counters wrap
def test_parts_of_tensors_are_the_reference_bit_for_bit(compared: Kernels, lane: Lane, bound: float) -> None:
    lane = small(compared, lane)
    scale = lane.largest.view(torch.float32)
    assert_coded_alike(compared, lane, scale, scale * bound)


@given(lane=parts, world=st.sampled_from(WORLDS), num_shards=st.integers(1, 9), seed=st.integers(0, 2**31))
@example(make_lane(EVERY_SIZE, 0, 0, 5), 4, 4, 0)
@example(make_lane(EVERY_SIZE, 0, 64, 4, start=96), 3, 5, 0)
@example(make_lane(WIDE, 0, 64, 5), 4, 3, 0)
@example(without_first(make_lane(SEVERAL, 297, 64, 4, start=32)), 3, 2, 1)
def test_decoding_sums_is_the_reference_bit_for_bit(
    compared: Kernels, lane: Lane, world: int, num_shards: int, seed: int
) -> None:
    lane = small(compared, lane)
    rows_per_shard = -(-lane.num_granules // num_shards) * lane.digits
    sum_digits = digits_per_word(2 * world + 1)
    generator = torch.Generator().manual_seed(seed)
    count = num_shards * -(-rows_per_shard // sum_digits) * ROW
    words = torch.randint(-(2**31), 2**31, (count,), generator=generator).to(torch.int32)
    steps = torch.randn(lane.num_scales, generator=generator)
    results = []
    for kernels in (REFERENCE, compared.ternary):
        x = lane.rubbish
        kernels.decode_sum(words, num_shards, rows_per_shard, world, sum_digits, lane.table, steps, x)
        results.append(x)
    assert same_bits(*results)


def assert_sums_exactly(kernels: Kernels, world: int, granules: int, digits: int) -> Tensor:
    """Adds payloads, takes the sums apart again, compares with the sum of the trits; gives the words."""
    sum_digits = digits_per_word(2 * world + 1)
    trits, payloads = random_trits(world, granules, digits, seed=granules)
    words = torch.full((-(-granules * digits // sum_digits) * ROW,), 0x5A, dtype=torch.int32)
    kernels.ternary.add(payloads.reshape(-1), world, digits, sum_digits, words)
    rows = granules * digits
    table = torch.tensor([0, rows * ROW, 0, 0, 0, 0])
    x = torch.full((rows * ROW,), torch.nan)
    kernels.ternary.decode_sum(words, 1, rows, world, sum_digits, table, torch.ones(1), x)
    assert torch.equal(x, (trits.sum(0) - world).flatten().float())
    return words


@pytest.mark.parametrize("digits", [4, 5])
@pytest.mark.parametrize("world", WORLDS)
def test_sums_are_exact_and_the_reference_bit_for_bit(compared: Kernels, world: int, digits: int) -> None:
    skip_large(compared, world)
    interpreted = compared.name == "triton"
    for granules in (1,) if world >= 100 or interpreted else (1, 7, 21):
        words = assert_sums_exactly(compared, world, granules, digits)
        assert same_bits(words, assert_sums_exactly(backends()["reference"], world, granules, digits))


def test_sums_of_the_largest_world_are_exact(native: Kernels) -> None:
    assert_sums_exactly(native, 32767, 1, 5)


def test_empty_tensors_have_no_block(native: Kernels) -> None:
    """Neither writes a scale for them."""
    found = []
    for ternary in (native.ternary, REFERENCE):
        bits, bounds = torch.full((2,), -1, dtype=torch.int32), torch.full((2,), -1.0)
        ternary.scales(torch.empty(0), torch.tensor([0, 0, 0, 0, 32, 0]), 2.5, False, bits, bounds)
        found += [bits, bounds]
    assert same_bits(found[0], found[2])
    assert same_bits(found[1], found[3])


@pytest.mark.parametrize("world", WORLDS)
def test_extreme_sums_fit_their_words(kernels: Kernels, world: int) -> None:
    """All ranks -1, all ranks +1, and the two beside each other."""
    sum_digits = digits_per_word(2 * world + 1)
    trits = torch.zeros(1, 8, 5, ROW, dtype=torch.int64)
    trits[:, 2:5] = 2
    trits[:, 5:, ::2] = 2
    value = sum(trits[:, :, k] * 3 ** (4 - k) for k in range(5))
    payload = (value * 256 // 243 + 1).to(torch.uint8).reshape(1, -1).expand(world, -1)
    words = torch.empty(-(-8 * 5 // sum_digits) * ROW, dtype=torch.int32)
    kernels.ternary.add(payload.reshape(-1), world, 5, sum_digits, words)
    x = torch.empty(8 * 5 * ROW)
    kernels.ternary.decode_sum(
        words, 1, 8 * 5, world, sum_digits, torch.tensor([0, x.numel(), 0, 0, 0, 0]), torch.ones(1), x
    )
    assert torch.equal(x, ((trits[0] - 1) * world).flatten().float())


@pytest.mark.parametrize("digits", [4, 5])
def test_every_byte_carries_its_digits(kernels: Kernels, digits: int) -> None:
    """T4: all 3**digits combinations survive; the leading digit of byte j is element j of the granule."""
    combinations = torch.cartesian_prod(*[torch.arange(3)] * digits)
    padding = torch.ones(-len(combinations) % ROW, digits, dtype=torch.int64)
    trits = torch.cat([combinations, padding]).view(-1, ROW, digits).transpose(1, 2)
    x = (trits - 1).float().reshape(-1)
    table = torch.tensor([0, x.numel(), 0, 0, 0, 0])
    payload = torch.zeros(trits.shape[0] * ROW, dtype=torch.uint8)
    scale = torch.ones(1)
    kernels.ternary.encode(
        x, table, torch.zeros(2, dtype=torch.int32), scale, torch.full((1,), torch.inf), digits, payload
    )
    radix = 3 if digits == 5 else 4
    value = sum(trits[:, k] * radix ** (digits - 1 - k) for k in range(digits))
    assert torch.equal(payload, (value * 256 // 243 + 1 if digits == 5 else value).to(torch.uint8).flatten())
    decoded = torch.full_like(x, torch.nan)
    kernels.ternary.decode_own(payload, digits, table, scale, decoded)
    assert torch.equal(decoded, x)


def test_a_value_as_large_as_the_scale_always_survives(kernels: Kernels) -> None:
    """T3 at the kernel: |g| >= s gives sign(g) for every random number, also for denormal scales."""
    for s in (1.0, 3e-39, 1.4e-45, 3e38):
        x = torch.full((5003,), s).where(torch.arange(5003) % 2 == 0, -s)
        payload = torch.empty(-(-5003 // 160) * ROW, dtype=torch.uint8)
        table, keys = torch.tensor([0, 5003, 0, 0, 0, 0]), torch.tensor([123, -456], dtype=torch.int32)
        kernels.ternary.encode(x, table, keys, torch.tensor([s]), torch.tensor([torch.inf]), 5, payload)
        decoded = torch.empty_like(x)
        kernels.ternary.decode_own(payload, 5, table, torch.tensor([s]), decoded)
        assert torch.equal(decoded, x)

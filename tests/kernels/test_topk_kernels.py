"""Native top-k kernels give the bits of the reference, and refuse tables and payloads that lead astray."""

from __future__ import annotations

import contextlib
import dataclasses
from dataclasses import dataclass
from functools import cache

import lanes as tensors
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lanes import KINDS, values
from torch import Tensor

from simulation import same_bits
from thinwire.codecs.topk import best_low_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.base import TopkKernels
from thinwire.kernels.sizes import high_bits

REFERENCE = backends()["reference"].topk
MANY_ALIKE = ("two values", "few values", "mostly zeros", "sorted", "grows", "many nans")
ALL_KINDS = (*KINDS, *MANY_ALIKE)
CHUNKS = (1, 2, 7, 31, 32, 33, 64, 65, 127, 256, 1000, 4095, 5003, 8191, 8192, 8193, 12345)
RATIOS = (0.0, 0.001, 0.01, 0.1, 0.25, 0.5, 0.9, 1.0)
EVERYTHING = [(kind, 5003, 1, 0.01, -1, 0, group) for kind in ALL_KINDS for group in (1, 2)]


def numbers(kind: str, size: int, seed: int) -> Tensor:
    """What makes selection hard: many equal numbers, order, and several kinds of NaN."""
    if kind in KINDS:
        return values(kind, size, seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator)
    if kind == "many nans":
        patterns = torch.randint(0x7F800000, 0x7F800004, (size,), generator=generator).to(torch.int32)
        return patterns.view(torch.float32) * torch.where(x > 0, 1.0, -1.0)
    made = {
        "two values": torch.where(x > 0, 1.0, -1.0),
        "few values": (3 * x).round(),
        "mostly zeros": torch.where(x > 2.5, x, 0.0),
        "sorted": x.sort().values,
        "grows": x * torch.linspace(0, 100, size),
    }
    return made[kind].contiguous()


@dataclass(frozen=True)
class Lane:
    """A buffer with runs of chunks in it, and room for what is chosen."""

    x: Tensor
    table: Tensor
    index_bytes: int
    num_values: int

    def select(self, kernels: TopkKernels, filling: int = 0xAA) -> tuple[Tensor, Tensor]:
        indices = torch.full((self.index_bytes,), filling, dtype=torch.uint8)
        chosen = torch.full((self.num_values,), -12345.0)
        kernels.select(self.x, self.table, indices, chosen)
        return indices, chosen


def make_lane(runs: list[tuple[str, int, int, float, int, int, int]], seed: int) -> Lane:
    """Runs are (kind, chunk, count, ratio, low bits or -1 for the best, gap before it, group)."""
    pieces, table, offset, end, value = [], [], 0, 0, 0
    for index, (kind, chunk, count, ratio, low, gap, group) in enumerate(runs):
        k = max(1, int(ratio * chunk))
        whole = low < 0 or k == chunk
        low_bits = best_low_bits(chunk, k) if whole else min(low, (chunk - 1).bit_length())
        high = end + -(-count * k * low_bits // 8)
        table += [offset + gap, chunk, count, k, low_bits, end, high, value, group]
        end = high + -(-count * high_bits(chunk, k, low_bits) // 8)
        pieces += [torch.full((gap,), 777.0), numbers(kind, chunk * count * group, seed + index)]
        offset, value = offset + gap + chunk * count * group, value + count * k * group
    x = torch.cat(pieces) if pieces else torch.empty(0)
    return Lane(x, torch.tensor(table, dtype=torch.int64), end, value)


run = st.tuples(
    st.sampled_from(ALL_KINDS),
    st.sampled_from(CHUNKS),
    st.integers(1, 3),
    st.sampled_from(RATIOS),
    st.sampled_from((-1, -1, 0, 1, 3, 31)),
    st.sampled_from((0, 0, 1, 7)),
    st.sampled_from((1, 2)),
)
lanes = st.builds(make_lane, st.lists(run, max_size=5), st.integers(0, 2**31))


SAMPLED = [  # chunks that kernels for GPUs take a sample of, several in a program, with and without success
    ("normal", 4096, 3, 0.003, -1, 0, 1),
    ("sorted", 5003, 2, 0.25, -1, 3, 2),
    ("mostly zeros", 8192, 1, 0.1, -1, 0, 1),
]


def few(kernels: Kernels, runs: list) -> list:
    """What Triton's interpreter has time for."""
    if kernels.name != "triton" or runs == SAMPLED:
        return runs
    found = [r for r in runs[:1] if 1000 < r[1] * r[2] <= 3 * tensors.first_most and r not in EVERYTHING]
    found += [r for r in runs if r[1] * r[2] <= 1000 or r in EVERYTHING]
    return found[:: max(1, -(-len(found) // 3))]


@given(runs=st.lists(run, max_size=5), seed=st.integers(0, 2**31))
@example(EVERYTHING, 0)
@example(SAMPLED, 4)
@example([(kind, 12345, 1, 0.25, -1, 0, group) for kind in ALL_KINDS for group in (1, 2)], 1)
@example([(kind, 65, 3, 0.1, -1, 0, group) for kind in ALL_KINDS for group in (1, 2)], 2)
@example([("normal", chunk, 2, 0.1, -1, 1, group) for chunk in CHUNKS for group in (1, 2)], 3)
def test_selection_is_the_reference_bit_for_bit(compared: Kernels, runs: list, seed: int) -> None:
    lane = make_lane(few(compared, runs), seed)
    expected = lane.select(REFERENCE)
    found = lane.select(compared.topk, filling=0x55)
    assert same_bits(found[0], expected[0])
    assert same_bits(found[1], expected[1])


@given(lanes=st.lists(st.integers(0, 2**31), min_size=1, max_size=4), runs=st.lists(run, max_size=4))
@example([0, 1, 2], EVERYTHING)
@example([0], [("normal", 40_000, 1, 0.01, -1, 3, 1)])
@example([0, 1], [("normal", 20_000, 1, 0.15, -1, 3, 2), ("normal", 500, 2, 1.0, -1, 0, 2)])
def test_scattering_is_the_reference_bit_for_bit(compared: Kernels, lanes: list[int], runs: list) -> None:
    """Several payloads at once, in order, with bytes behind the indices that are not theirs."""
    made = [make_lane(few(compared, runs), seed) for seed in lanes]
    selected = [lane.select(REFERENCE) for lane in made]
    behind = torch.full((5,), 0xEE, dtype=torch.uint8)
    payloads = torch.cat([torch.cat([indices, behind]) for indices, _ in selected])
    chosen = torch.cat([own for _, own in selected])
    expected, found = torch.full_like(made[0].x, -1.0), torch.full_like(made[0].x, -1.0)
    for kernels, x in ((REFERENCE, expected), (compared.topk, found)):
        kernels.scatter(payloads, len(made), made[0].table, chosen, 1 / len(made), x)
    assert same_bits(found, expected)


@cache
def large_chunk(kind: str, ratio: float, group: int) -> tuple[Lane, tuple[Tensor, Tensor]]:
    """With what the reference selects of it."""
    lane = make_lane([(kind, 300_007, 1, ratio, -1, 0, group)], 5)
    return lane, lane.select(REFERENCE)


@pytest.mark.parametrize("kind", ["normal", "grows", "few values", "mostly zeros"])
@pytest.mark.parametrize("ratio", [1e-5, 0.001, 0.01, 0.3])
@pytest.mark.parametrize("group", [1, 2])
def test_large_chunks(native: Kernels, kind: str, ratio: float, group: int) -> None:
    """Sampled guesses, their failures and the full radix selection all end in the same choice."""
    lane, expected = large_chunk(kind, ratio, group)
    assert all(same_bits(a, b) for a, b in zip(lane.select(native.topk), expected, strict=True))


def test_a_sample_that_misleads(native: Kernels) -> None:
    """Large numbers in one place only: most of a sample's groups see none of them."""
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(0))
    x[150_000:151_000] *= 1000
    lane = Lane(x, torch.tensor([0, 200_000, 1, 2000, 6, 0, 1500, 0, 1]), 1500 + 641, 2000)
    expected = lane.select(REFERENCE)
    assert all(same_bits(a, b) for a, b in zip(lane.select(native.topk), expected, strict=True))


def sampled_places(size: int) -> Tensor:
    """Where kernels for GPUs look for their guess: 8 of every 256 groups (kernels/triton/topk_select.py)."""
    piece = torch.arange(size // 256)
    within = ((piece * 0x1E3779B1) & 0xFFFFFFFF) >> 27
    return (piece * 256 + within * 8).unsqueeze(1).add(torch.arange(8)).flatten()


@pytest.mark.parametrize("sample", ["large", "small", "like the rest"])
def test_a_guess_is_verified(compared: Kernels, sample: str) -> None:
    """A sample that says too much or too little costs time, and no bits."""
    x = torch.randn(5003, generator=torch.Generator().manual_seed(1)).clamp(-3, 3)
    x[sampled_places(5003)] *= {"large": 1000.0, "small": 1e-6, "like the rest": 1.0}[sample]
    lane = Lane(x, torch.tensor([0, 5003, 1, 1000, 2, 0, 250, 0, 1]), 250 + 282, 1000)
    expected = lane.select(REFERENCE)
    assert all(same_bits(a, b) for a, b in zip(lane.select(compared.topk), expected, strict=True))


def test_what_is_chosen_by_hand(kernels: Kernels) -> None:
    """|x| by bit pattern, NaN before Inf before numbers, ties by the lowest index; Elias-Fano bits."""
    nan, inf = torch.nan, torch.inf
    x = torch.tensor([1.0, -3.0, 3.0, nan, 0.0, -inf, 3.0, -0.0])
    # indices 1, 2, 3, 5: low bits 1 0 1 1; high parts 0 1 1 2 are the bits 0, 2, 3, 5 of 3 + 4
    table = torch.tensor([0, 8, 1, 4, 1, 0, 1, 0, 1])
    indices, chosen = torch.zeros(2, dtype=torch.uint8), torch.zeros(4)
    kernels.topk.select(x, table, indices, chosen)
    assert chosen.tolist()[:2] == [-3.0, 3.0]
    assert chosen[2].isnan()
    assert chosen[3] == -inf
    assert indices.tolist() == [0b1101, 0b101101]


def test_pairs_by_hand(kernels: Kernels) -> None:
    """The length of a pair decides; no square overflows or vanishes; NaN before Inf before numbers."""
    most, least = torch.finfo(torch.float32).max, 2.0**-149
    pairs = [[most, most], [3.0, 4.0], [-5.0, 0.0], [least, least], [0.0, 0.0], [0.0, -torch.inf]]
    pairs += [[torch.nan, 0.0], [torch.inf, -torch.nan], [0.0, 2 * least], [4.9, 0.9], [-4.9, 1.1]]
    order = [6, 7, 5, 0, 10, 1, 2, 9, 8, 3, 4]  # 5 and 5 tie, and 1.4 least is 1 least as a float
    for k in range(1, len(pairs)):
        table = torch.tensor([0, len(pairs), 1, k, 0, 0, 0, 0, 2])
        indices, chosen = torch.zeros(2, dtype=torch.uint8), torch.zeros(2 * k)
        kernels.topk.select(torch.tensor(pairs).flatten(), table, indices, chosen)
        kept = sorted(order[:k])
        assert [i for i in range(len(pairs)) if indices[i // 8] >> (i % 8) & 1] == kept
        assert same_bits(chosen, torch.tensor([pairs[i] for i in kept]).flatten())


@pytest.mark.parametrize("exponent", [-149, -126, -60, 0, 60, 127])
def test_lengths_of_pairs_are_rounded_once(native: Kernels, exponent: int) -> None:
    """A square root that is wrong in its last bit would choose another pair somewhere in a full ordering."""
    generator = torch.Generator().manual_seed(exponent + 200)
    close = 1 + torch.rand(8000, generator=generator) * 2**-12
    lane = make_lane([("normal", 4000, 1, 0.5, 0, 0, 2)], 0)
    lane = dataclasses.replace(lane, x=(close.double() * 2.0**exponent).float())
    for k in (1, 10, 500, 1999, 3000):
        table = torch.tensor([0, 4000, 1, k, 0, 0, 0, 0, 2])
        lane = dataclasses.replace(lane, table=table, index_bytes=500, num_values=2 * k)
        expected = lane.select(REFERENCE)
        assert all(same_bits(a, b) for a, b in zip(lane.select(native.topk), expected, strict=True))


@pytest.mark.parametrize("group", [1, 2])
def test_whole_chunks_have_no_places(kernels: Kernels, group: int) -> None:
    x = torch.randn(3 * 5 * group)
    table, nothing = torch.tensor([0, 5, 3, 5, 0, 0, 0, 0, group]), torch.zeros(0, dtype=torch.uint8)
    chosen, found = torch.zeros_like(x), torch.full_like(x, -1.0)
    kernels.topk.select(x, table, nothing, chosen)
    assert same_bits(chosen, x)
    kernels.topk.scatter(nothing, 1, table, chosen, 1.0, found)
    assert same_bits(found, x)


GOOD = [0, 8, 1, 4, 1, 0, 1, 0, 1]


@pytest.mark.parametrize(
    ("place", "value", "sentence"),
    [
        (0, -1, "a chunk lies outside the buffer"),
        (0, 1, "a chunk lies outside the buffer"),
        (1, 9, "a chunk lies outside the buffer"),
        (1, 0, "a chunk has 1 to"),
        (1, 2**31, "a chunk has 1 to"),
        (2, 2, "a chunk lies outside the buffer"),
        (2, 2**62, "a chunk lies outside the buffer"),
        (2, -1, "a chunk lies outside the buffer"),
        (3, 0, "k lies outside"),
        (3, 9, "k lies outside"),
        (4, -1, "low_bits lies outside"),
        (4, 32, "low_bits lies outside"),
        (5, 2, "indices lie outside the payload"),
        (5, -1, "indices lie outside the payload"),
        (6, 2, "indices lie outside the payload"),
        (6, 2**62, "indices lie outside the payload"),
        (7, 1, "values lie outside their buffer"),
        (7, -1, "values lie outside their buffer"),
        (8, 0, "a group is 1 or 2 numbers"),
        (8, 2, "a chunk lies outside the buffer"),
        (8, 3, "a group is 1 or 2 numbers"),
    ],
)
def test_bad_tables(native: Kernels, place: int, value: int, sentence: str) -> None:
    table = [*GOOD[:place], value, *GOOD[place + 1 :]]
    room = torch.zeros(2, dtype=torch.uint8), torch.zeros(4)
    with pytest.raises(ValueError, match=sentence):
        native.topk.select(torch.zeros(8), torch.tensor(table), *room)
    with pytest.raises(ValueError, match=sentence):
        native.topk.scatter(room[0], 1, torch.tensor(table), room[1], 1.0, torch.zeros(8))


def test_bad_sizes(native: Kernels) -> None:
    indices, chosen, x = torch.zeros(2, dtype=torch.uint8), torch.zeros(4), torch.zeros(8)
    with pytest.raises(ValueError, match="nine columns"):
        native.topk.select(x, torch.tensor(GOOD[:-1]), indices, chosen)
    for count in (0, -1, 3):
        with pytest.raises(ValueError, match="uneven sizes"):
            native.topk.scatter(indices, count, torch.tensor(GOOD), chosen, 1.0, x)
    with pytest.raises(TypeError):
        native.topk.select(x.double(), torch.tensor(GOOD), indices, chosen)


@pytest.mark.parametrize(
    ("table", "payload"),
    [
        ([0, 8, 1, 4, 1, 0, 1, 0, 1], [0, 0b0000111]),  # three places instead of four
        ([0, 8, 1, 4, 1, 0, 1, 0, 1], [0, 0b0011111]),  # five of them
        ([0, 8, 1, 4, 1, 0, 1, 0, 1], [0, 0]),
        ([0, 6, 1, 2, 3, 0, 1, 0, 1], [0b111000, 0]),  # place 7 of 6
        ([0, 6, 1, 2, 1, 0, 1, 0, 1], [0, 0]),
        ([0, 8, 1, 4, 0, 0, 0, 0, 1], [0b111, 0]),  # a bitmap with three of four
        ([0, 4, 2, 1, 0, 0, 0, 0, 1], [0b0011, 0]),  # both in the first of two chunks
        ([0, 4, 2, 1, 0, 0, 0, 0, 1], [0b110000, 0]),  # both in the second
    ],
)
def test_damaged_payloads(kernels: Kernels, table: list[int], payload: list[int]) -> None:
    with pytest.raises(ValueError, match="its indices are damaged"):
        kernels.topk.scatter(
            torch.tensor(payload, dtype=torch.uint8),
            1,
            torch.tensor(table),
            torch.ones(4),
            1.0,
            torch.zeros(8),
        )


@given(lane=lanes, seed=st.integers(0, 2**31))
def test_random_bytes_never_leave_the_buffer(native: Kernels, lane: Lane, seed: int) -> None:
    """Whatever the payload says, only the tensors of the lane are written, or the call is refused."""
    generator = torch.Generator().manual_seed(seed)
    indices = torch.randint(0, 256, (lane.index_bytes,), generator=generator).to(torch.uint8)
    guarded = torch.full((lane.x.numel() + 128,), 5.0)
    with contextlib.suppress(ValueError):
        native.topk.scatter(
            indices, 1, lane.table, torch.ones(lane.num_values), 1.0, guarded[64 : 64 + lane.x.numel()]
        )
    assert (guarded[:64] == 5.0).all()
    assert (guarded[-64:] == 5.0).all()

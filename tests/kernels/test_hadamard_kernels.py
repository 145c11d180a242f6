"""Rotations: native equals reference bit for bit, both are orthonormal, and bad tables are refused."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends

REFERENCE = backends()["reference"]
SIZES = (1, 16, 32, 64, 128, 256, 512, 1024, 4096)
SPECIAL = (0.0, -0.0, math.nan, math.inf, -math.inf, 3e38, 1e-45)


@dataclass(frozen=True)
class Turned:
    """Runs of tensors in a buffer, with what is not a number here and there."""

    x: Tensor
    table: Tensor
    keys: Tensor
    factors: Tensor
    size: int
    room: int

    def forward(self, kernels: Kernels) -> Tensor:
        y = torch.full((self.room,), -12345.0)
        kernels.hadamard.forward(self.x, self.table, self.keys, self.factors, self.size, y)
        return y

    def inverse(self, kernels: Kernels, y: Tensor) -> Tensor:
        x = torch.full_like(self.x, -12345.0)
        kernels.hadamard.inverse(y, self.table, self.keys, self.factors, self.size, x)
        return x


def made(size: int, numels: list[int], blocks: int, start: int, seed: int, special: float = 1.0) -> Turned:
    """`blocks` of `size` elements share a factor, 0: all of a run do; `start` blocks lie before each run."""
    draw = torch.Generator().manual_seed(seed)
    table, source, target, scale = [], 3, 1, 0
    for numel in numels:
        table += [source, numel, target, scale, blocks * size, start * size]
        source, target = source + numel + 2, target + numel + 1
        scale += (start * size + numel) // (blocks * size) + 1 if blocks else 1
    x = torch.randn(source + 2, generator=draw)
    x[torch.randint(len(x), (1,), generator=draw)] = special
    keys = torch.randint(-(2**31), 2**31, (2 * len(numels),), generator=draw).to(torch.int32)
    factors = torch.rand(scale, generator=draw) + 0.5
    return Turned(x, torch.tensor(table, dtype=torch.int64), keys, factors, size, target + 2)


shape = {
    "size": st.sampled_from(SIZES),
    "numels": st.lists(st.integers(0, 5000), max_size=3),
    "blocks": st.sampled_from((0, 1, 4)),
    "start": st.integers(0, 3),
    "seed": st.integers(0, 2**31),
    "special": st.sampled_from(SPECIAL),
}


@given(**shape)
@example(512, [5120, 511, 1], 1, 0, 0, 1.0)
@example(4096, [9000, 33], 0, 2, 1, math.nan)
@example(512, [1 << 18], 1, 0, 2, 1.0)  # past the caches
@example(512, [1, 4, 2048], 1, 0, 5, 1.0)  # the last one is aligned on both sides
@example(1, [100, 7], 4, 1, 3, math.inf)
def test_both_ways_are_the_reference_bit_for_bit(
    compared: Kernels, size: int, numels: list[int], blocks: int, start: int, seed: int, special: float
) -> None:
    if compared.name == "triton":  # what its interpreter has time for
        numels = [min(numel, 5003) for numel in numels]
    case = made(size, numels, blocks, start, seed, special)
    y = case.forward(REFERENCE)
    assert same_bits(case.forward(compared), y)
    assert same_bits(case.inverse(compared, y), case.inverse(REFERENCE, y))


@given(
    places=st.lists(st.integers(0, 511), min_size=1, max_size=4, unique=True),
    seed=st.integers(0, 2**31),
    value=st.sampled_from((math.inf, 3.3e38, -1.7e38)),
    factor=st.sampled_from((1.0, 22.62, math.inf, math.nan, 0.0)),
)
@example([0, 256], 0, 3.3e38, 22.62)  # too large for float32 in the last level of butterflies alone
@example([7, 263, 128, 384], 1, 3.3e38, 22.62)  # the same one level earlier: infinity minus infinity
def test_what_is_no_number_is_one_nan(
    compared: Kernels, places: list[int], seed: int, value: float, factor: float
) -> None:
    """Whichever of the values in between are the first that are not finite."""
    case = made(512, [512], 0, 0, seed)
    case.x.zero_()
    case.x[torch.tensor(places) + 3] = value
    case.factors.fill_(factor)
    assert same_bits(case.forward(compared), case.forward(REFERENCE))
    y = torch.zeros(case.room)
    y[torch.tensor(places) + 1] = value
    assert same_bits(case.inverse(compared, y), case.inverse(REFERENCE, y))


@pytest.mark.parametrize("size", SIZES[1:])
@pytest.mark.parametrize("numel", [1, 31, 512, 5003])
def test_a_rotation_keeps_lengths_and_goes_back(kernels: Kernels, size: int, numel: int) -> None:
    case = made(size, [numel], 0, 0, seed=numel)
    case.factors.fill_(1.0)
    y, x = case.forward(kernels), case.x[3 : 3 + numel]
    torch.testing.assert_close(y[1 : 1 + numel].norm(), x.norm())
    torch.testing.assert_close(case.inverse(kernels, y)[3 : 3 + numel], x)


def test_it_is_hadamards_matrix_times_signs(kernels: Kernels) -> None:
    """Columns of what it does to unit vectors are +-1 / sqrt(n), orthogonal, in Sylvester's order."""
    n = 16
    case = made(n, [n], 0, 0, seed=5)
    case.factors.fill_(1.0)
    columns = []
    for unit in torch.eye(n):
        case.x[3 : 3 + n] = unit
        columns.append(case.forward(kernels)[1 : 1 + n] * math.sqrt(n))
    matrix = torch.stack(columns, 1)
    signs = matrix[0]
    places = torch.arange(n)
    parity = torch.tensor([[bin(int(i & j)).count("1") % 2 for j in places] for i in places])
    assert torch.equal(signs.abs(), torch.ones(n))
    assert 0 < (signs < 0).sum() < n
    assert torch.equal(matrix, (1.0 - 2.0 * parity) * signs)


def test_signs_follow_from_the_place_in_the_tensor(kernels: Kernels) -> None:
    """A tensor in two runs is what it is in one."""
    case = made(64, [640], 1, 0, seed=6)
    whole = case.forward(kernels)
    cut = torch.tensor([3, 128, 1, 0, 64, 0, 131, 512, 129, 0, 64, 128], dtype=torch.int64)
    parts = torch.full_like(whole, -12345.0)
    kernels.hadamard.forward(case.x, cut, case.keys.repeat(2), case.factors, 64, parts)
    assert same_bits(parts, whole)


BAD = {
    "outside its buffer": [[3, 64, 1000, 0, 64, 0], [-1, 64, 1, 0, 64, 0], [3, 1 << 40, 1, 0, 64, 0]],
    "uneven block": [[3, 64, 1, 0, 96, 0], [3, 64, 1, 0, -64, 0]],
    "uneven start": [[3, 64, 1, 0, 64, 32], [3, 64, 1, 0, 64, -64]],
    "outside the table of factors": [[3, 64, 1, 5, 64, 0], [3, 64, 1, -1, 64, 0]],
}


@pytest.mark.parametrize(("says", "run"), [(says, run) for says, runs in BAD.items() for run in runs])
def test_bad_tables_are_refused(native: Kernels, says: str, run: list[int]) -> None:
    case = made(64, [64], 1, 0, seed=0)
    with pytest.raises(ValueError, match=says):
        native.hadamard.forward(
            case.x, torch.tensor(run), case.keys, case.factors[:1], 64, torch.empty(case.room)
        )


@pytest.mark.parametrize("size", [0, -64, 48, 8, 8192])
def test_bad_sizes_are_refused(native: Kernels, size: int) -> None:
    case = made(64, [64], 0, 0, seed=0)
    with pytest.raises(ValueError, match="a power of two from 16 to 4096 wanted"):
        native.hadamard.inverse(
            torch.ones(99), case.table, case.keys, case.factors, size, torch.empty(case.room)
        )

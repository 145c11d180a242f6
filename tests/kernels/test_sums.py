"""Sums in chunks: the reference is the page (wire.md), and native kernels equal it bit for bit."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.reference.bits import CHUNK, ordered_sum

SIZES = (1, 15, 16, 17, 4095, 4096, 4097, 8192, 12301)


def numbers(size: int, seed: int = 0) -> Tensor:
    """Of very different sizes, so that every order of additions gives other bits."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator)
    return x * torch.exp2(torch.randint(-12, 13, (size,), generator=generator).float())


def sum_by_the_page(values: list[float]) -> float:
    sums = []
    for first in range(0, len(values), 4096):
        lanes = [0.0] * 16
        for i, value in enumerate(values[first : first + 4096]):
            lanes[i % 16] += value
        for half in (8, 4, 2, 1):
            lanes = [lanes[j] + lanes[j + half] for j in range(half)]
        sums.append(lanes[0])
    return sums[0] if len(sums) == 1 else sum_by_the_page(sums)


@pytest.mark.parametrize("size", SIZES)
def test_the_reference_is_the_page(size: int) -> None:
    values = numbers(size).double()
    assert ordered_sum(values) == sum_by_the_page(values.tolist())


def test_sums_of_chunks_are_summed_like_numbers() -> None:
    """What a GPU does: all chunks at once, then their sums. More than 4096 chunks make a third round."""
    chunks = numbers(5000).double()
    values = torch.zeros(5000, CHUNK, dtype=torch.float64)
    values[:, 0] = chunks
    assert ordered_sum(values.flatten()) == ordered_sum(chunks)
    assert ordered_sum(chunks) == sum_by_the_page(chunks.tolist())


def statistics(kernels: Kernels, x: Tensor) -> list[Tensor]:
    """Everything that kernels sum up: sigma, an L2 norm, means of signs, errors of range floats."""
    table = torch.tensor([0, x.numel(), 0, 0, 0, 0])
    scale, bound = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    kernels.ternary.scales(x, table, 1.0, True, scale, bound)
    norm = torch.zeros(1, dtype=torch.int32)
    kernels.qsgd.scales(x, table, True, norm)
    low, high = torch.zeros(1), torch.zeros(1)
    bits = torch.zeros(-(-x.numel() // 1024) * 128, dtype=torch.uint8)
    kernels.sign.encode(x, table, False, bits, low, high)
    errors = torch.zeros(4, dtype=torch.int32)
    kernels.rangefloat.measure(x, torch.tensor([0, x.numel()]), 8, 2, 3, 0, errors)
    return [scale, norm, low, high, bits, errors]


@pytest.mark.parametrize("size", [*SIZES, 65_536, 100_003])
def test_statistics_are_the_reference_bit_for_bit(compared: Kernels, size: int) -> None:
    interpreted = compared.name == "triton"
    if interpreted and size not in (4097, 65_536):  # of one chunk there are property tests
        pytest.skip("Triton's interpreter would take long")
    for seed in range(1 if interpreted else 3):
        x = numbers(size, seed)
        for found, expected in zip(
            statistics(compared, x), statistics(backends()["reference"], x), strict=True
        ):
            assert same_bits(found, expected)


def test_more_than_4096_chunks(native: Kernels) -> None:
    """The sums of chunks are more than one chunk themselves."""
    x = torch.zeros(5000 * CHUNK)
    x.view(-1, CHUNK)[:, :7] = numbers(35_000).view(5000, 7)
    norm = torch.zeros(1, dtype=torch.int32)
    native.qsgd.scales(x, torch.tensor([0, x.numel(), 0, 0, 0, 0]), True, norm)
    squares = x.view(-1, CHUNK)[:, :7].double().square()
    sums = torch.stack([torch.tensor(ordered_sum(row)) for row in squares]).double()
    expected = torch.tensor(ordered_sum(sums)).double().sqrt().float()
    assert same_bits(norm.view(torch.float32), expected.view(1))


@pytest.mark.parametrize("offset", [0.0, 10.0, 1000.0])
def test_sigma_is_accurate(kernels: Kernels, offset: float) -> None:
    """A mean 1000 times sigma costs no more than 1e-5 of it."""
    x = numbers(300_000).clamp(-3, 3) + offset
    scale, bound = torch.zeros(1, dtype=torch.int32), torch.zeros(1)
    kernels.ternary.scales(x, torch.tensor([0, x.numel(), 0, 0, 0, 0]), 1.0, True, scale, bound)
    sigma = x.double().std(correction=0).item()
    assert scale.view(torch.float32).item() == pytest.approx(sigma, rel=1e-6)

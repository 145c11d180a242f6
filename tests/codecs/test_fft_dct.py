"""The dct stage: its definition, Parseval, back again, and where it beats the Fourier transform."""

from __future__ import annotations

import math

import pytest
import torch
from spectra import CHUNKS, SIZES, ar1, coordinates, energy, loss, sent, white
from torch import Tensor

from packing import one_tensor, pack
from simulation import same_bits
from thinwire.tensors import Layout, Spec


def cosines(numel: int) -> Tensor:
    """The matrix of the orthonormal DCT-II, in float64."""
    k = torch.arange(numel, dtype=torch.float64)
    matrix = torch.cos(math.pi * k[:, None] * (2 * k + 1) / (2 * numel)) * math.sqrt(2 / numel)
    matrix[0] /= math.sqrt(2)
    return matrix


@pytest.mark.parametrize("numel", [1, 2, 3, 4, 5, 31, 64, 65, 1009])
def test_numbers_are_those_of_the_definition(numel: int) -> None:
    x = white(numel)
    found = coordinates("dct >> dense", x)
    torch.testing.assert_close(found.double(), cosines(numel) @ x.double(), rtol=0, atol=4e-6)


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("numel", SIZES)
def test_parseval_and_back(numel: int, chunk: int | str) -> None:
    x, text = white(numel), f"dct:{chunk} >> dense"
    y = coordinates(text, x)
    assert y.numel() == numel
    assert energy(y) == pytest.approx(energy(x), rel=1e-6)
    torch.testing.assert_close(sent(text, x), x, rtol=0, atol=4e-6)


def test_what_is_dropped_is_bounded() -> None:
    for rho in (0.0, 0.9):
        assert loss("dct >> topk:0.15 >> dense", ar1(9001, rho)) <= 0.85


def test_it_does_not_wrap_around() -> None:
    """A ramp has a jump where its end meets its beginning, and cosines do not see it."""
    ramp = torch.linspace(-1, 1, 4096)
    assert 100 * loss("dct >> topk:0.01 >> dense", ramp) < loss("fft:0.99 >> dense", ramp)


def test_correlated_neighbours_pay() -> None:
    x = ar1(1 << 14, 0.9)
    assert loss("dct >> topk:0.15 >> dense", x) < 0.3 * loss("topk:0.15 >> dense", x)


@pytest.mark.parametrize("shift", range(0, 20, 3))
def test_the_place_in_memory_changes_no_bits(shift: int) -> None:
    x, numel = white(10_000), 10_000
    expected = pack("dct:100 >> dense", one_tensor(numel), [x])
    there = torch.zeros(numel + 32)
    there[shift : shift + numel] = x
    moved = pack("dct:100 >> dense", Layout((Spec("w", (numel,)),), (shift,)), [there])
    assert same_bits(moved.payloads[0], expected.payloads[0])
    assert same_bits(moved.own(0, there)[shift : shift + numel], expected.own(0, x))

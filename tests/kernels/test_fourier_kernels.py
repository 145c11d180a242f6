"""Fourier and cosine transforms: native equals reference at every length, and both are what they say."""

from __future__ import annotations

import math
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import Tensor

from simulation import same_bits
from thinwire.codecs.fft import roots, turning
from thinwire.kernels import Kernels, backends

CPU = torch.device("cpu")
LENGTHS = [*range(1, 33), 60, 97, 98, 120, 128, 131, 250, 585, 1152, 4096]
OBJECTS = sorted(
    path
    for family in ("fourier", "products")
    for path in Path(__file__)
    .resolve()
    .parents[2]
    .glob(f"build/*/CMakeFiles/kernels_*.dir/csrc/{family}.cpp.o")
)
WIDE = 20  # rows: more than any instruction set takes side by side, and not a multiple


def rows_of(count: int, length: int) -> Tensor:
    return torch.randn(count, length, generator=torch.Generator().manual_seed(length))


def forward(kernels: Kernels, x: Tensor, cosine: bool) -> Tensor:
    n = x.shape[1]
    y = torch.full((x.shape[0], n if cosine else n + n % 2), -12345.0)
    kernels.fourier.forward(x, *turning(n, cosine, CPU).tables, y)
    return y


def inverse(kernels: Kernels, y: Tensor, length: int, cosine: bool) -> Tensor:
    x = torch.full((y.shape[0], length), -12345.0)
    kernels.fourier.inverse(y, *turning(length, cosine, CPU).tables, x)
    return x


def expected(x: Tensor, cosine: bool) -> Tensor:
    """In float64, by the definitions."""
    n = x.shape[1]
    j = torch.arange(n, dtype=torch.float64)
    if cosine:
        table = torch.cos(math.pi * j[:, None] * (2 * j + 1) / (2 * n)) * math.sqrt(2 / n)
        table[0] /= math.sqrt(2)
        return x.double() @ table.t()
    spectrum = torch.view_as_real(torch.fft.rfft(x.double(), norm="ortho"))
    pairs = spectrum[:, : (n + 1) // 2] * math.sqrt(2)
    pairs[:, 0, 0] = spectrum[:, 0, 0]
    pairs[:, 0, 1] = spectrum[:, -1, 0] if n % 2 == 0 else 0.0
    return pairs.flatten(1)


@pytest.mark.parametrize("cosine", [False, True], ids=["fourier", "cosine"])
@pytest.mark.parametrize("length", LENGTHS)
def test_every_length(native: Kernels, length: int, cosine: bool) -> None:
    """Right, there and back, and bit for bit that of the reference, alone or side by side."""
    x, reference = rows_of(WIDE if length < 200 else 3, length), backends()["reference"]
    y = forward(native, x, cosine)
    back = inverse(native, y, length, cosine)
    torch.testing.assert_close(y.double(), expected(x, cosine), rtol=0, atol=4e-6)
    torch.testing.assert_close(back, x, rtol=0, atol=4e-6)
    assert same_bits(y, forward(reference, x, cosine))
    assert same_bits(back, inverse(reference, y, length, cosine))
    assert same_bits(y[1:2], forward(native, x[1:2], cosine))


def test_long_rows_go_one_by_one(native: Kernels) -> None:
    """Rows of more numbers than are transformed side by side, of a length that only Bluestein's way does."""
    x = rows_of(2, 2 * 66_103)
    y = forward(native, x, False)
    assert same_bits(y, forward(backends()["reference"], x, False))
    torch.testing.assert_close(inverse(native, y, x.shape[1], False), x, rtol=0, atol=1e-5)


@pytest.mark.parametrize("cosine", [False, True], ids=["fourier", "cosine"])
@pytest.mark.parametrize("length", [64, 98, 131])
def test_what_is_no_number_stays_in_its_row(kernels: Kernels, length: int, cosine: bool) -> None:
    x = rows_of(9, length)
    x[2, 3] = math.nan
    y = forward(kernels, x, cosine)
    back = inverse(kernels, y, length, cosine)
    for found in (y, back):
        assert bool(found[2].isnan().any())
        assert bool(found[[0, 1, *range(3, 9)]].isfinite().all())
        assert bool((found[found.isnan()].view(torch.int32) == 0x7FC00000).all())


def test_roots_of_unity_are_right_to_the_last_bits() -> None:
    for count in (1, 3, 8, 12, 1000):
        k = torch.arange(count + 1)
        angle = k.double() * (-2 * math.pi / count)
        expected = torch.stack([angle.cos(), angle.sin()], 1)
        torch.testing.assert_close(roots(k, count), expected, rtol=0, atol=2e-15)
    assert roots(torch.arange(5), 4).tolist() == [[1, 0], [0, -1], [-1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize("damage", range(6))
def test_tables_that_do_not_fit_are_refused(native: Kernels, damage: int) -> None:
    tables = list(turning(98, True, CPU).tables)
    tables[damage] = tables[damage][:-1].clone()
    arguments = [torch.ones(2, 98), *tables, torch.ones(2, 98)]
    with pytest.raises(ValueError, match=r"sizes|wrong size"):
        native.fourier.forward(*arguments)


@pytest.mark.parametrize(("x", "y"), [((2, 96), (2, 98)), ((2, 98), (3, 98)), ((2, 98), (2, 99))])
def test_rows_that_do_not_fit_are_refused(native: Kernels, x: tuple[int, int], y: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="rows: wrong size"):
        native.fourier.forward(torch.ones(x), *turning(98, False, CPU).tables, torch.ones(y))


@pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump here (binutils)")
@pytest.mark.skipif(not OBJECTS, reason="there are no built objects here: `make setup` leaves them in build/")
@pytest.mark.parametrize("path", OBJECTS, ids=lambda path: f"{path.stem}-{path.parts[-3]}")
def test_the_compiler_fuses_nothing(path: Path) -> None:
    """One rounding instead of two would be other bits; GCC 12 did so in AVX2 and AVX-512 builds."""
    listing = subprocess.run(["objdump", "-d", str(path)], capture_output=True, text=True, check=True).stdout
    assert re.findall(r"\bvfn?m(?:add|sub)\w*", listing) == []

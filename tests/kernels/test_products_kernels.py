"""Products in one order of additions: native equals reference, and what they are is right."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends

NONE = torch.empty(0)
SHAPES = [(1, 1, 1), (5, 7, 3), (67, 131, 4), (4, 67, 131), (67, 4, 131), (131, 256, 32), (43, 32, 256)]
LARGE = [(30, 2500, 9), (9, 300, 515), (17, 0, 5), (20, 300, 2500), (0, 3, 4), (3, 4, 0)]


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def product(kernels: Kernels, a: Tensor, b: Tensor, start: Tensor = NONE) -> Tensor:
    c = torch.full((a.shape[0], b.shape[1]), -12345.0)
    kernels.products.product(a, b, start, c)
    return c


def orthonormal(kernels: Kernels, p: Tensor) -> Tensor:
    left = p.clone()
    kernels.products.orthonormal(left)
    return left


@pytest.mark.parametrize("shape", SHAPES + LARGE, ids=str)
def test_native_products_equal_the_reference(native: Kernels, shape: tuple[int, int, int]) -> None:
    """However the operands lie: rows or columns contiguous, with a first row or without."""
    rows, depth, columns = shape
    a, b, start = normal(rows, depth), normal(depth, columns, seed=1), normal(columns)
    for first in (NONE, start):
        expected = product(backends()["reference"], a, b, first)
        for left in (a, a.t().contiguous().t()):
            for right in (b, b.t().contiguous().t()):
                assert same_bits(product(native, left, right, first), expected)


def test_products_are_right(kernels: Kernels) -> None:
    a, b, start = normal(37, 53), normal(53, 41), normal(41)
    expected = a.double() @ b.double() + start.double()
    torch.testing.assert_close(product(kernels, a, b, start).double(), expected, rtol=0, atol=2e-5)


def test_results_may_be_rows_of_a_larger_matrix(kernels: Kernels) -> None:
    a, b, room = normal(9, 5), normal(5, 20), torch.full((9, 50), 7.0)
    kernels.products.product(a, b, NONE, room[:, 3:23])
    assert same_bits(room[:, 3:23].contiguous(), product(kernels, a, b))
    assert bool((room[:, :3] == 7).all() & (room[:, 23:] == 7).all())


def test_what_is_no_number_has_one_set_of_bits(kernels: Kernels) -> None:
    a, b = normal(20, 8).abs(), normal(8, 20)
    a[3, 2], b[1, 7], b[2, 7] = math.nan, math.inf, -math.inf
    c = product(kernels, a, b)
    assert bool(c[3].isnan().all() & c[:, 7].isnan().all())
    assert int(c.isnan().sum()) == 20 + 20 - 1
    assert bool((c[c.isnan()].view(torch.int32) == 0x7FC00000).all())


@pytest.mark.parametrize(
    ("a", "b", "start", "c"),
    [((3, 4), (5, 6), 0, (3, 6)), ((3, 4), (4, 6), 5, (3, 6)), ((3, 4), (4, 6), 0, (3, 5))],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(
    native: Kernels, a: tuple[int, int], b: tuple[int, int], start: int, c: tuple[int, int]
) -> None:
    with pytest.raises(ValueError, match="product: "):
        native.products.product(torch.ones(a), torch.ones(b), torch.ones(start), torch.ones(c))


def dependent() -> Tensor:
    columns = normal(50, 4)
    columns[:, 2] = columns[:, 0] + 1e-7 * columns[:, 1]
    columns[:, 3] = 2 * columns[:, 1]
    return columns


@pytest.mark.parametrize(
    "p",
    [normal(67, 4), normal(6, 6), normal(1, 1), normal(257, 9) * 1e-30, dependent(), torch.zeros(50, 4)],
    ids=["thin", "square", "one", "small", "dependent", "zeros"],
)
def test_columns_become_orthonormal(kernels: Kernels, p: Tensor) -> None:
    """And span what they spanned: the projection on them leaves the columns as they were."""
    left = orthonormal(kernels, p)
    torch.testing.assert_close(left.t() @ left, torch.eye(p.shape[1]), rtol=0, atol=1e-6)
    back = left.double() @ (left.double().t() @ p.double())
    torch.testing.assert_close(back, p.double(), rtol=0, atol=1e-6 * max(1e-30, float(p.abs().max())))
    assert same_bits(left, orthonormal(backends()["reference"], p))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_columns_that_are_not_finite_become_nan(kernels: Kernels, bad: float) -> None:
    p = normal(50, 4)
    p[3, 1] = bad
    assert bool(orthonormal(kernels, p).isnan().all())


def test_more_columns_than_rows_are_refused(native: Kernels) -> None:
    with pytest.raises(ValueError, match="more columns than rows"):
        native.products.orthonormal(torch.ones(3, 4))


def eigen(kernels: Kernels, a: Tensor) -> tuple[Tensor, Tensor]:
    rows, values = a.clone(), a.new_empty(a.shape[0])
    kernels.products.eigen(rows, values)
    return rows, values


def symmetric(n: int, kind: str) -> Tensor:
    x = normal(n // 2 + 1 if kind == "low rank" else 3 * n + 1, n).double()
    if kind == "graded":
        x *= torch.logspace(0, -12, n, dtype=torch.float64)
    return {"zeros": 0 * torch.eye(n).double(), "equal": 2 * torch.eye(n).double()}.get(kind, x.t() @ x)


@pytest.mark.parametrize("kind", ["full", "low rank", "graded", "zeros", "equal"])
@pytest.mark.parametrize("n", [1, 2, 3, 5, 32, 65])
def test_eigenvectors(kernels: Kernels, n: int, kind: str) -> None:
    a = symmetric(n, kind)
    rows, values = eigen(kernels, a)
    close: dict[str, Any] = {"rtol": 0, "atol": 1e-13 * n * max(1.0, float(a.abs().max()))}
    torch.testing.assert_close(rows @ rows.t(), torch.eye(n).double(), rtol=0, atol=1e-13 * n)
    torch.testing.assert_close(rows.t() @ (values[:, None] * rows), a, **close)
    torch.testing.assert_close(values.sort().values, torch.linalg.eigvalsh(a), **close)
    for found, expected in zip((rows, values), eigen(backends()["reference"], a), strict=True):
        assert same_bits(found, expected)


def test_eigenvectors_of_what_is_not_finite_are_nan(kernels: Kernels) -> None:
    a = symmetric(8, "full")
    a[3, 4] = a[4, 3] = math.inf
    assert all(bool(found.isnan().all()) for found in eigen(kernels, a))

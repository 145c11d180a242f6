"""What the host finds out about tensors: whether all numbers are finite."""

from __future__ import annotations

import math

import pytest
import torch

from thinwire.devices import is_finite

DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", [0, 31, 999])
def test_one_number_that_is_not_finite_is_found(dtype: torch.dtype, bad: float, place: int) -> None:
    x = torch.ones(1000, dtype=dtype)
    x[place] = bad
    assert not is_finite(x)


def test_infinities_that_cancel_are_found() -> None:
    assert not is_finite(torch.tensor([math.inf, 1.0, -math.inf]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sign", [1, -1])
def test_finite_numbers_whose_sum_overflows_are_finite(dtype: torch.dtype, sign: int) -> None:
    largest = torch.full((64,), sign * torch.finfo(dtype).max, dtype=dtype)
    assert not torch.isfinite(largest.sum())
    assert is_finite(largest)


def test_no_numbers_are_finite() -> None:
    assert is_finite(torch.empty(0))

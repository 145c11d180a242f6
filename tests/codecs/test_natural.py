"""Natural compression: powers of two, unbiased, 9 bits per element."""

from __future__ import annotations

import math

import torch

import thinwire as tw
from packing import bound, one_tensor, pack

N = 4096


def draws(x: torch.Tensor, count: int) -> torch.Tensor:
    layout = one_tensor(x.numel())
    return torch.stack([pack("natural", layout, [x], step).mean(x) for step in range(count)])


def test_nine_bits_per_element() -> None:
    packer = bound("natural", one_tensor(N)).packer
    assert 8 * packer.payload_bytes == 9 * N
    assert tw.parse("natural").feedback == "none"


def test_values_are_the_powers_of_two_around_the_number() -> None:
    x = torch.randn(N, generator=torch.Generator().manual_seed(0))
    found = draws(x, 1)[0]
    low = torch.sign(x) * 2.0 ** torch.floor(torch.log2(x.abs()))
    assert ((found == low) | (found == 2 * low)).all()


def test_it_is_unbiased_and_errs_by_an_eighth_at_most() -> None:
    """E Q(x) = x and E|Q(x) - x|^2 <= x^2 / 8 (the bound of the paper), element by element."""
    x, count = torch.linspace(1.0, 4.0, 256), 2000
    found = draws(x, count).double()
    noise = found.std(0) / math.sqrt(count)
    assert ((found.mean(0) - x).abs() <= 6 * noise + 1e-9).all()
    assert (((found - x) ** 2).mean(0) <= x**2 / 8 * 1.2).all()


def test_powers_of_two_and_the_ends_of_the_range() -> None:
    tiny, large = 2.0**-126, torch.finfo(torch.float32).max
    exact = torch.tensor([0.0, 1.0, -1.0, 0.25, -8.0, tiny, 2.0**127])
    assert torch.equal(draws(exact, 3)[2], exact)
    assert draws(torch.tensor([large]), 50).max() == 2.0**127, "what is finite stays finite"
    assert draws(torch.tensor([torch.nan, -torch.nan, torch.inf, -torch.inf]), 1).isnan().all()
    assert set(draws(torch.tensor([tiny / 2]), 100).flatten().tolist()) == {0.0, tiny}

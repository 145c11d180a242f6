"""The quantizer: LSQ's gradients, steps of least squared error, powers of two only."""

from __future__ import annotations

from math import log

import pytest
import torch

from thinwire_private.train.qnet import Quantizer


def test_gradients_are_those_of_lsq() -> None:
    quantizer = Quantizer(signed=False)
    quantizer.t.data.fill_(1.2)  # exponent 1: step 1/2
    v = torch.tensor([-1.0, 0.2, 0.6, 1.3, 9.0], requires_grad=True)
    grad = torch.tensor([1.0, 2.0, 3.0, 5.0, 7.0])
    y = quantizer(v, 2)
    assert y.tolist() == [0.0, 0.0, 0.5, 1.5, 1.5]
    y.backward(grad)
    assert v.grad is not None
    assert v.grad.tolist() == [0.0, 2.0, 3.0, 5.0, 0.0]
    # q - v/s inside the range, the end of the range outside
    errors = torch.tensor([0.0, 0 - 0.4, 1 - 1.2, 3 - 2.6, 3.0])
    step_grad = float((grad * errors).sum()) / (5 * 3) ** 0.5
    assert quantizer.t.grad is not None
    assert quantizer.t.grad.item() == pytest.approx(-log(2) * 0.5 * step_grad, rel=1e-5)


def test_round_half_up_as_the_integers_do() -> None:
    quantizer = Quantizer(signed=True)
    v = torch.tensor([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5])
    assert quantizer(v, 8).tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0, 3.0]


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_fit_takes_the_best_power_of_two(bits: int) -> None:
    torch.manual_seed(0)
    v = torch.randn(2000) * 0.3
    quantizer = Quantizer(signed=True)
    quantizer.fit(v, bits)
    best = quantizer.exponent()

    def error(exponent: int) -> float:
        quantizer.t.data.fill_(float(exponent))
        return float((quantizer(v, bits) - v).detach().square().sum())

    assert best == min(range(-10, 14), key=error)


def test_a_step_is_never_finer_than_what_it_rounds() -> None:
    quantizer = Quantizer(signed=False)
    quantizer.t.data.fill_(9.0)
    assert quantizer.exponent() == 9
    assert quantizer.exponent(finest=4) == 4

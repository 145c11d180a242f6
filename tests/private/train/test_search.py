"""The search against trying everything, and sensitivities against what they approximate."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch
from torch.nn import functional

from thinwire_lab.private.study import load_pictures
from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.widths import Bits, read_bits
from thinwire_private.net.zoo import build
from thinwire_private.train.fit import TrainingSchedule, fit
from thinwire_private.train.qnet import QNet
from thinwire_private.train.search import Space, search
from thinwire_private.train.sensitivity import (
    Omega,
    WidthOptions,
    fisher,
    full_fisher,
    hutchinson,
    net_folded,
    rounded,
    traces_of_hessian,
)

DRAW = partial(build, "digits")
SPACE = Space(DRAW, read_bits("W4A4"), (2, 4, 6), (2, 4))


def price(graph: Graph) -> int:
    """A made-up byte model with interactions: a requant's price depends on the sum before it."""
    layers = sum(layer.macs * layer.weight_bits * layer.acc_bits for layer in graph.layers)
    requants = [node for node in graph if node.kind == "requant"]
    return (layers + sum(node.taken[0].bits ** 2 * node.value.size for node in requants)) // 8


@pytest.fixture(scope="module")
def trained() -> QNet:
    torch.manual_seed(0)
    net = QNet(DRAW(Bits()))
    fit(net, load_pictures("digits"), TrainingSchedule(1.5, 0.1, 64), 0)
    return net


@pytest.fixture(scope="module")
def omega(trained: QNet) -> Omega:
    data = load_pictures("digits")
    return fisher(trained, data.x[:128], data.y[:128], SPACE.asked)


def everything(omega: Omega) -> list[tuple[float, int]]:
    """Sensitivity and price of every choice there is."""
    found = []
    for w2, w3, a1, a2, a3 in product(SPACE.weights, SPACE.weights, *[SPACE.activations] * 3):
        bits = SPACE.bits({"conv2": w2, "conv3": w3}, {"relu1": a1, "relu2": a2, "relu3": a3})
        suffered = omega.layers["conv2"][w2, a1] + omega.layers["conv3"][w3, a2] + omega.requants["relu3"][a3]
        found.append((suffered, price(DRAW(bits))))
    return found


@pytest.mark.parametrize("share", [0.02, 0.2, 0.5, 0.9])
def test_the_search_finds_what_trying_everything_finds(omega: Omega, share: float) -> None:
    table = everything(omega)
    prices = sorted(cost for _, cost in table)
    budget = round(prices[0] + share * (prices[-1] - prices[0]))
    found = search(SPACE, omega, price, budget)
    assert found.num_bytes == price(DRAW(found.bits)) <= budget
    best = min(suffered for suffered, cost in table if cost <= budget)
    # interactions are corrected for after the fact: within 5 % of the best, not always the best
    assert found.omega <= 1.05 * best + 1e-12


def test_a_budget_that_nothing_fits_is_refused(omega: Omega) -> None:
    with pytest.raises(ModelError, match=r"fit a budget of 0\.00 MB: the narrowest ones need 0\.\d\d MB"):
        search(SPACE, omega, price, 1000)


def test_fewer_bits_hurt_more(omega: Omega) -> None:
    for layer in omega.layers.values():
        assert layer[2, 4] > layer[4, 4] > layer[6, 4] > 0
        assert layer[6, 2] > layer[6, 4]


def test_fisher_is_the_squared_first_order_loss(trained: QNet) -> None:
    """For one picture, a sum of squares of what the loss changes by, to first order, in each output."""
    data = load_pictures("digits")
    wide = WidthOptions({"fc": [(16, 16)], "conv2": [(16, 16), (3, 16)]}, {})
    found = fisher(trained, data.x[:1], data.y[:1], wide)
    assert found.layers["fc"][16, 16] < 1e-6 * max(1.0, found.layers["conv2"][3, 16])
    assert found.layers["conv2"][3, 16] > 1e3 * found.layers["conv2"][16, 16]


def test_full_fisher_is_the_slope_along_the_error(trained: QNet) -> None:
    """Half the square of what the loss changes by, to first order, on the way to the rounded weights."""
    data = load_pictures("digits")
    asked = WidthOptions({"conv3": [(3, 16)]}, {})
    expected = 0.0
    for x, y in zip(data.x[:4, None], data.y[:4, None], strict=True):
        net = net_folded(trained)
        weight = net.layer("conv3").weight
        (slope,) = torch.autograd.grad(functional.cross_entropy(net(x), y), weight)
        expected += 0.5 * float((slope * (rounded(weight, 3, signed=True) - weight.detach())).sum()) ** 2
    found = full_fisher(trained, data.x[:4], data.y[:4], asked).layers["conv3"][3, 16]
    assert found == pytest.approx(expected, rel=0.02)


def test_hutchinson_estimates_the_trace() -> None:
    """On the last layer the Hessian of the cross entropy is known: p (1 - p) x^2 on its diagonal."""
    torch.manual_seed(0)
    data = load_pictures("digits")
    net = QNet(DRAW(Bits()))
    net.layer("fc").weight.data.mul_(0.05)
    x, y = data.x[:64], data.y[:64]
    with torch.no_grad():
        found = net.eval().trace(x)
        p = functional.softmax(found["fc"].real, 1)
        exact = (p * (1 - p)).sum(1) @ found["pool"].real.flatten(1).square().sum(1) / len(x)
    estimates = [traces_of_hessian(net, x, y, ["fc"])["fc"] for _ in range(4)]
    assert sum(estimates) / 4 == pytest.approx(float(exact), rel=0.25)


def test_hutchinson_ranks_like_the_error_of_the_weights(trained: QNet) -> None:
    data = load_pictures("digits")
    found = hutchinson(trained, data.x[:64], data.y[:64], SPACE.asked)
    for layer in found.layers.values():
        assert layer[2, 4] > layer[4, 4] > layer[6, 4]


def test_sensitivity_needs_the_floating_point_network(trained: QNet) -> None:
    data = load_pictures("digits")
    net = QNet(DRAW(Bits()))
    net.quantize(data.x[:16])
    with pytest.raises(ModelError, match="before quantize"):
        fisher(net, data.x[:16], data.y[:16], SPACE.asked)


def test_a_space_leaves_the_ends_alone() -> None:
    space = replace(SPACE, draw=partial(build, "resnet8w"), base=read_bits("W4A6R8"))
    assert space.layers[0] == "s1b1.conv1"
    assert "stem" not in space.layers
    assert "fc" not in space.layers
    assert "pool" not in space.requants
    assert not any(name.endswith(".res") for name in space.requants)
    assert space.pooled == ("s3b1.relu2",)
    shared = replace(space, base=read_bits("W4A6"))
    assert "stem.relu" in shared.pooled

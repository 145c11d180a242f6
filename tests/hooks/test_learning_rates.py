"""Memories with lr=on hold the change of the weights that is owed, whatever becomes of the learning rate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from thinwire.errors import PlanError
from thinwire.feedback.base import ErrorFeedback, Transmission
from thinwire.feedback.table import make_feedback
from thinwire.groups.thread import ThreadGroup
from thinwire.hooks.compressor import Compressor
from thinwire.plans.policy import Policy
from thinwire.tensors import Layout, Spec

PIECES = Layout.packed([Spec("a", (6,))]).pieces()
RATES = [0.1, 0.1, 0.4, 0.0, 0.02, 0.02]


def largest(v: Tensor, count: int = 2) -> Tensor:
    sent = torch.zeros_like(v)
    chosen = v.abs().topk(count).indices
    sent[chosen] = v[chosen]
    return sent


def step(feedback: ErrorFeedback, g: Tensor, rate: float, scale: float = 1.0) -> Tensor:
    """What is sent of a gradient, in units of the gradient."""
    feedback.rates = {"a": rate}
    x = g * scale
    feedback.before(x, PIECES, scale)
    sent = largest(x)
    feedback.after(Transmission(x, sent, 0, PIECES, scale))
    feedback.commit()
    return sent / scale


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("text", ["residual:lr=on", "residual:lr=on,undo=off"])
def test_residuals_follow_the_learning_rate(text: str, scale: float) -> None:
    """e is multiplied by the ratio of the rates when they change; at rate 0 nothing is sent or owed."""
    torch.manual_seed(0)
    feedback, owed = make_feedback(text), torch.zeros(6)
    for rate in RATES:
        g = torch.randn(6)
        p = g + owed / rate if rate else g
        sent = step(feedback, g, rate, scale)
        torch.testing.assert_close(sent, largest(p), rtol=1e-5, atol=1e-5)
        owed = (p - largest(p)) * rate if rate else owed
        torch.testing.assert_close(feedback.state()["residual"]["a"], owed, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mask", ["on", "off"])
def test_unsent_momentum_follows_the_learning_rate(mask: str) -> None:
    torch.manual_seed(1)
    feedback, u, owed = make_feedback(f"momentum:lr=on,mask={mask}"), torch.zeros(6), torch.zeros(6)
    for rate in RATES:
        g = torch.randn(6)
        u = 0.9 * u + g
        v = u + (owed / rate if rate else 0)
        expected = largest(v)
        torch.testing.assert_close(step(feedback, g, rate), expected, rtol=1e-5, atol=1e-5)
        if rate:
            owed = (v - expected) * rate
            u = torch.where(expected != 0, 0.0, u) if mask == "on" else u
        torch.testing.assert_close(feedback.state()["unsent"]["a"], owed, rtol=1e-5, atol=1e-6)


def test_equal_rates_change_nothing_but_units() -> None:
    torch.manual_seed(2)
    rated, plain = make_feedback("residual:lr=on"), make_feedback("residual")
    for _ in range(4):
        g = torch.randn(6)
        torch.testing.assert_close(step(rated, g, 0.25), step(plain, g, 1.0))


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.fixture
def compressor(net: nn.Module) -> Iterator[Compressor]:
    group = ThreadGroup.make(1)[0]
    made = Compressor(Policy.of("topk:0.01"), group, torch.device("cpu"), net, feedback="residual:lr=on")
    yield made
    made.close()


def exchange(made: Compressor, net: nn.Module) -> None:
    parameters: list[Tensor] = list(net.parameters())
    made.queue.exchange(torch.ones(sum(p.numel() for p in parameters)), parameters, True, lambda: None)
    made.wait()


def test_rates_come_from_the_optimizer(net: nn.Module, compressor: Compressor) -> None:
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    compressor.check_optimizer(optimizer)
    exchange(compressor, net)
    residual = compressor.engine.feedbacks["residual:lr=on"].state()["residual"]["0.weight"]
    assert set(residual.tolist()) == {0.0, 0.5}
    optimizer.param_groups[0]["lr"] = 0.25
    exchange(compressor, net)
    again = compressor.engine.feedbacks["residual:lr=on"].state()["residual"]["0.weight"]
    assert float(again.max()) == 0.5 + 0.25  # what was owed, and the new gradient at the new rate


def test_without_an_optimizer_there_is_a_sentence(net: nn.Module, compressor: Compressor) -> None:
    with pytest.raises(PlanError, match="no optimizer is known: call compressor"):
        exchange(compressor, net)
    compressor.check_optimizer(torch.optim.SGD(net.parameters(), 0.5))
    with pytest.raises(PlanError, match="is gone"):
        exchange(compressor, net)


def test_a_tensor_that_the_optimizer_does_not_know(net: nn.Sequential, compressor: Compressor) -> None:
    optimizer = torch.optim.SGD(net[2].parameters(), 0.5)
    compressor.check_optimizer(optimizer)
    with pytest.raises(PlanError, match=r"needs the learning rate of 0\.weight"):
        exchange(compressor, net)

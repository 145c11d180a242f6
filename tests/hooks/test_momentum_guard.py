"""Momentum is applied once: by the memory, or by the optimizer."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

from thinwire.errors import PlanError, StateError
from thinwire.groups.thread import ThreadGroup
from thinwire.hooks.compressor import Compressor
from thinwire.plans.policy import Policy

CPU = torch.device("cpu")


@pytest.fixture
def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 32), nn.ReLU(), nn.Linear(32, 10))


@pytest.fixture
def dgc(net: nn.Module) -> Iterator[Compressor]:
    yield from compressor(net, "dgc:0.01")


def compressor(net: nn.Module | None, codec: str, feedback: str | None = None) -> Iterator[Compressor]:
    made = Compressor(Policy.of(codec), ThreadGroup.make(1)[0], CPU, net, feedback=feedback)
    yield made
    made.close()


def exchange(made: Compressor, net: nn.Module) -> None:
    parameters: list[Tensor] = list(net.parameters())
    made.queue.exchange(torch.randn(sum(p.numel() for p in parameters)), parameters, True, lambda: None)
    made.wait()


def test_second_momentum_is_refused(net: nn.Module, dgc: Compressor) -> None:
    with pytest.raises(PlanError) as caught:
        dgc.check_optimizer(torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
    told = str(caught.value)
    assert "momentum would be applied twice to 0.weight and 1 more" in told
    assert "SGD has momentum=0.9" in told
    assert "compressor.param_groups(model.parameters(), momentum=0.9)" in told
    for optimizer in (
        torch.optim.Adam(net.parameters()),
        torch.optim.AdamW(net.parameters()),
        torch.optim.RMSprop(net.parameters(), momentum=0.5),
    ):
        with pytest.raises(PlanError, match=f"{type(optimizer).__name__} has (betas|momentum)="):
            dgc.check_optimizer(optimizer)


def test_once_is_fine(net: nn.Module, dgc: Compressor) -> None:
    dgc.check_optimizer(torch.optim.SGD(net.parameters(), 0.1))
    dgc.check_optimizer(torch.optim.RMSprop(net.parameters()))


def test_tensors_that_stay_dense_keep_their_momentum(net: nn.Sequential, dgc: Compressor) -> None:
    groups = dgc.param_groups(net.parameters(), momentum=0.9)
    optimizer = torch.optim.SGD(groups, 0.1)
    dgc.check_optimizer(optimizer)
    by_momentum = {group["momentum"]: len(group["params"]) for group in optimizer.param_groups}
    assert by_momentum == {0.9: 4, 0.0: 2}  # three biases and the last layer; two weights
    corrected = {id(p) for group in groups if group["momentum"] == 0 for p in group["params"]}
    assert corrected == {id(net[0].weight), id(net[2].weight)}


def test_other_memories_leave_the_optimizer_alone(net: nn.Module) -> None:
    for made in compressor(net, "topk:0.01"):
        made.check_optimizer(torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))
        assert [group["momentum"] for group in made.param_groups(net.parameters(), momentum=0.9)] == [0.9]
    for made in compressor(net, "topk:0.01", feedback="momentum:0.5"):
        with pytest.raises(PlanError, match="applied twice"):
            made.check_optimizer(torch.optim.SGD(net.parameters(), 0.1, momentum=0.9))


def test_nobody_looked(net: nn.Module, dgc: Compressor) -> None:
    with pytest.warns(UserWarning, match=r"call compressor.check_optimizer\(optimizer\) once"):
        exchange(dgc, net)
    exchange(dgc, net)  # one warning is enough


def test_somebody_looked(net: nn.Module) -> None:
    """Warnings are errors here."""
    for made in compressor(net, "dgc:0.01"):
        made.check_optimizer(torch.optim.SGD(net.parameters(), 0.1))
        exchange(made, net)
    for made in compressor(net, "dgc:0.01"):
        made.param_groups(net.parameters(), momentum=0.9)
        exchange(made, net)
    for made in compressor(net, "terngrad"):
        exchange(made, net)


def test_names_are_needed(net: nn.Module) -> None:
    for made in compressor(None, "dgc:0.01"):
        with pytest.raises(StateError, match="check_optimizer needs parameter names"):
            made.check_optimizer(torch.optim.SGD(net.parameters(), 0.1))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            exchange(made, net)
        assert any("check_optimizer" in str(warning.message) for warning in caught)

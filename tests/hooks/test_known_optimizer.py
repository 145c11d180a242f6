"""What a compressor knows of an optimizer: its family, the quality that follows, whose parameters it has."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from thinwire.auto.qualities import CANDIDATES, FAMILIES, candidates
from thinwire.errors import PlanError, StateError
from thinwire.groups.thread import ThreadGroup
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.optimizer import family_of, quality_by
from thinwire.plans.policy import Policy

CPU = torch.device("cpu")


class Lars(torch.optim.SGD):
    """A user's own."""


class Wrapper(torch.optim.Optimizer):
    """What it does with the gradients cannot be seen from outside."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        super().__init__(inner.param_groups, {})
        self.inner = inner

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        self.inner.step(closure)


def parameters() -> list[nn.Parameter]:
    return [nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(2))]


def test_families_are_those_of_torch_and_their_subclasses() -> None:
    first, second = parameters()
    groups = [{"params": [first], "lr": 1e-3}, {"params": [second], "weight_decay": 0.1}]
    assert family_of(torch.optim.SGD(groups, lr=0.1)) == "SGD"
    assert family_of(Lars(parameters(), lr=0.1)) == "SGD"
    assert family_of(torch.optim.Adam(parameters())) == "Adam"
    assert family_of(torch.optim.AdamW(parameters())) == "Adam"
    assert family_of(torch.optim.Adagrad(parameters())) is None
    assert family_of(Wrapper(torch.optim.SGD(parameters(), lr=0.1))) is None


def test_the_default_quality_follows_from_the_evidence() -> None:
    assert quality_by(None) == ("safe", "")
    assert quality_by(Wrapper(torch.optim.SGD(parameters(), lr=0.1))) == (
        "safe",
        'quality "safe": what codecs do to Wrapper was not studied',
    )
    assert quality_by(torch.optim.SGD(parameters(), lr=0.1))[0] == "SGD"
    assert quality_by(torch.optim.AdamW(parameters()))[0] == "Adam"
    kept = {candidate.codec: candidate.kept for candidate in CANDIDATES}
    for family in FAMILIES:
        assert candidates(family) == tuple(codec for codec in kept if family in kept[codec])
        assert set(candidates("safe")) <= set(candidates(family)) < set(kept)
    assert set(candidates("safe")) < set(candidates("SGD"))  # under Adam nothing more is known to retain it


def compressor(net: nn.Module | None, codec: str, optimizer: torch.optim.Optimizer) -> Compressor:
    return Compressor(Policy.of(codec), ThreadGroup.make(1)[0], CPU, net, optimizer=optimizer)


def test_an_optimizer_that_is_given_is_checked() -> None:
    net = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    compressor(net, "dgc:0.01", torch.optim.SGD(net.parameters(), lr=0.1)).close()
    with pytest.raises(PlanError, match="momentum would be applied twice"):
        compressor(net, "dgc:0.01", torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9))
    with pytest.raises(PlanError, match="updates no parameter of this model"):
        compressor(net, "qsgd:4", torch.optim.SGD(parameters(), lr=0.1))
    with pytest.raises(StateError, match="optimizer= needs parameter names"):
        compressor(None, "qsgd:4", torch.optim.SGD(net.parameters(), lr=0.1))

"""Histograms of gradients: of the largest layers, in chosen steps only."""

from __future__ import annotations

import torch
from torch import nn

from thinwire_lab.run.observers import NUM_BINS, NUM_LAYERS, GradientHistograms


def look(net: nn.Module, step: int, factor: float = 1.0) -> list[dict]:
    """A step of a run that is looked at in step 2; the exchange makes nought of the gradients."""
    histograms = GradientHistograms(net, {2}, now=lambda: step)
    net.zero_grad()
    (factor * net(torch.ones(1, 8)).square().sum()).backward()
    for parameter in net.parameters():
        assert parameter.grad is not None
        parameter.grad.zero_()
    return histograms.take()


def made() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(8, 8) for _ in range(5)))


def test_a_rank_s_own_and_what_came_back() -> None:
    net = made()
    assert look(net, 1) == []
    entries = look(net, 2)
    assert len(entries) == NUM_LAYERS
    assert {len(entry["own"]) for entry in entries} == {NUM_BINS}
    assert all(entry["mean"][NUM_BINS // 2] == 64 for entry in entries), "all zeros"
    assert all(sum(entry["own"]) == 64 > entry["own"][NUM_BINS // 2] for entry in entries)


def test_gradients_that_are_not_finite_have_none() -> None:
    net = made()
    assert look(net, 2, float("inf")) == []

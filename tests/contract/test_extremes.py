"""Obligations on extreme gradients: finite ones have finite means on every rank, others never do.

Every codec x kinds of gradients x dtypes of parameters, three ranks in one process. Where a dtype cannot hold
a kind (1e20 in fp16) the kind is as large as it can.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest
import torch
from cases import texts
from torch import Tensor

from simulation import Gradients, Simulation, assert_ranks_agree, specs_of
from thinwire.groups.thread import ThreadGroup, run_ranks

WORLD = 3
SHAPE = (12, 36)
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Kind = Callable[[Tensor, int], Tensor]  # normal numbers and a rank, to the rank's gradient


def scaled(magnitude: float) -> Kind:
    return lambda g, rank: g * magnitude


def put(value: float, only_on: int | None = None) -> Kind:
    """One element of the gradients, on all ranks or on one."""

    def kind(g: Tensor, rank: int) -> Tensor:
        if only_on is None or rank == only_on:
            g[3, 5] = value
        return g

    return kind


FINITE: Mapping[str, Kind] = {
    "1e-30": scaled(1e-30),
    "1e-20": scaled(1e-20),
    "1e-9": scaled(1e-9),
    "1e9": scaled(1e9),
    "1e20": scaled(1e20),
    "1e30": scaled(1e30),
    "one huge element": put(1e30),
    "all equal": lambda g, rank: torch.full_like(g, 0.37),
    "subnormal": scaled(1e-40),
    "zeros": lambda g, rank: torch.zeros_like(g),
    "mixed magnitudes": lambda g, rank: g * (1e-20, 1.0, 1e20)[rank],
}
KEPT = {"1e-30": 1e-30, "1e-20": 1e-20, "1e-9": 1e-9, "1e9": 1e9, "1e20": 1e20, "1e30": 1e30}
BAD: Mapping[str, Kind] = {"one NaN": put(math.nan, only_on=1), "one Inf": put(math.inf, only_on=1)}


def gradients(kind: Kind, rank: int) -> Tensor:
    g = torch.randn(SHAPE, generator=torch.Generator().manual_seed(rank), dtype=torch.float64)
    return kind(g, rank)


def fitting(g: Tensor, dtype: torch.dtype) -> Tensor:
    """Half of the largest number at most: sums in the dtype itself round up, plain DDP's too."""
    largest = torch.finfo(dtype).max / 2
    return g.clamp(-largest, largest).to(dtype)


def means_of(text: str, dtype: torch.dtype) -> dict[str, Tensor]:
    """Of every kind, as a tensor of its own; two steps, so that memories and bases have a say."""
    specs = specs_of(dict.fromkeys((*FINITE, *BAD), SHAPE), dtype)
    simulation = Simulation(text, specs, WORLD)

    def work(group: ThreadGroup) -> list[Gradients]:
        engine = simulation.engine(group)
        finite = {name: fitting(gradients(kind, group.rank), dtype) for name, kind in FINITE.items()}
        bad = {name: gradients(kind, group.rank).to(dtype) for name, kind in BAD.items()}
        good = {name: torch.zeros(SHAPE, dtype=dtype) for name in BAD}
        return [simulation.step(engine, {**finite, **good}), simulation.step(engine, {**finite, **bad})]

    ranks = run_ranks(WORLD, work, timeout_s=60)
    assert_ranks_agree(ranks)
    first, second = ranks[0]
    return {**{f"{name}, first step": first[name] for name in FINITE}, **second}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("text", texts())
def test_finite_gradients_have_finite_means_and_others_have_not(text: str, dtype: torch.dtype) -> None:
    means = means_of(text, dtype)
    finite = {name: bool(torch.isfinite(mean).all()) for name, mean in means.items()}
    assert [name for name in means if finite[name] == (name in BAD)] == []
    assert not means["zeros"].any()
    for name, magnitude in KEPT.items():
        if magnitude < torch.finfo(dtype).max / 4 and magnitude > 4 * torch.finfo(dtype).smallest_normal:
            assert "max=" in text or 0.01 < float(means[name].double().abs().max()) / magnitude < 100, name

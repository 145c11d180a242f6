"""A steady step on a device takes no memory but what is listed here, and writes to where it wrote before."""

from __future__ import annotations

from functools import cache

import pytest
import torch
from test_no_host import CPU, SPECS, WORLD, gradients

from opaque import DEVICE, DeviceModule, OpaqueGroup, Trace, on_device, opaque_kernels, to_device
from simulation import Simulation
from thinwire.exchange.engine import Bucket, Engine
from thinwire.groups.base import Group
from thinwire.groups.thread import run_ranks
from thinwire.kernels import pick

STEADY = (5, 6, 7, 8)
PERIODS = {"sign": 2, "topk:0.1": 2}  # residuals are written beside those of the step before, to be undone
KEYS = ["_to_copy in devices.py:sent"]  # drawn anew in every step: a captured graph would be given them
FINITE = ["lt in devices.py:_finite"]  # one byte; it goes to the host while the next step runs
STEPS = ["div in levels.py:encode", *KEYS, "div in levels.py:decode"]  # a float for each scale, twice
TAKES: dict[str, list[str]] = {  # docs/background/gpu.md says the same
    "terngrad": STEPS,
    "qsgd:4": STEPS,
    "sign": FINITE,
    "natural": KEYS,
    "topk:0.1": FINITE,
    "rangefloat:8": [],
}


@pytest.fixture(autouse=True)
def device_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "meta", DeviceModule, raising=False)


def traces(simulation: Simulation, group: Group) -> list[Trace]:
    """Of steps 5 to 8; gradients come in the same bucket in every step."""
    with on_device() as mode:
        kernels, found = opaque_kernels(pick(CPU)), []
        engine = Engine(simulation.plan, OpaqueGroup(group), DEVICE, 0, kernels, error_every=0)
        x = to_device(gradients(0, group.rank, False))
        for step in range(max(STEADY) + 1):
            mode.next_step()
            x.copy_(to_device(gradients(step, group.rank, False)))
            engine.exchange(Bucket(x, simulation.layouts[0]))
            engine.end_step()
            found.append(mode.trace)
        return [found[step] for step in STEADY]


@cache
def all_traces(text: str) -> list[list[Trace]]:
    simulation = Simulation(text, SPECS, WORLD)
    return run_ranks(WORLD, lambda group: traces(simulation, group))


@pytest.mark.parametrize("text", TAKES)
def test_memory_that_a_steady_step_takes_is_listed(text: str) -> None:
    for rank in all_traces(text):
        for trace in rank:
            assert trace.made == TAKES[text]


@pytest.mark.parametrize("text", TAKES)
def test_steady_steps_ask_the_same_of_the_same_memory(text: str) -> None:
    """By call trace and by pointer, as a captured graph needs it."""
    for rank in all_traces(text):
        for trace, later in zip(rank, rank[PERIODS.get(text, 1) :], strict=False):
            assert trace.kept
            assert trace.kept == later.kept
            assert trace.places == later.places
            assert trace.acts == later.acts


@pytest.mark.parametrize("text", PERIODS)
def test_residuals_change_places(text: str) -> None:
    """Nothing else does."""
    for first, second, *_ in all_traces(text):
        moved = {
            act for (act, place), other in zip(first.kept, second.kept, strict=True) if place != other[1]
        }
        assert moved == {"sub", "where"}

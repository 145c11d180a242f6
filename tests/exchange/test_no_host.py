"""The line on a device whose tensors the host cannot read: the bits of the CPU, and no wait in a step."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from opaque import DEVICE, DeviceModule, OpaqueGroup, Trace, on_device, opaque_kernels, to_device, to_host
from simulation import Simulation
from thinwire.exchange.engine import Bucket, Engine
from thinwire.groups.base import Group
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.hooks.failures import explain
from thinwire.kernels import pick
from thinwire.tensors import Spec

CPU = torch.device("cpu")
SPECS = (Spec("w", (48, 20)), Spec("b", (130,)), Spec("v", (32, 33)))
WORLD, STEPS, SPOILT = 2, 5, 2  # the number of the step in which a gradient is not finite
FREE = (  # codecs in whose steps the host waits for nothing
    "terngrad",
    "terngrad:scales=own",
    "terngrad:clip=1",
    "qsgd:4",
    "qsgd:8,block=64,scales=own",
    "rotated:3",
    "rotated:7",
    "sign",
    "sign:values=scaled",
    "sign:values=rms",
    "sign:block=column",
    "natural",
    "topk:0.1",
    "topk:0.1 >> fp16",
    "topk:0.2 >> sign",
    "dgc:0.05,warmup=0",
    "rangefloat:8",
    "rangefloat:8,max=0.5",
    "powersgd:2",
    "clip:2 >> ternary",
    "dense",
    "fp16",
    "bf16",
    "fft:0.5,chunk=32",
)
WAITING = ("gradiveq:4,slice=32,sample=1,compress=4,layers=all", "sparseloco")  # docs/gpu.md lists them


@pytest.fixture(autouse=True)
def device_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "meta", DeviceModule, raising=False)


@dataclass(frozen=True)
class Run:
    """Every step's means of one rank, what it held at the end, and what each step asked of the device."""

    means: list[Tensor]
    held: dict[str, Tensor]
    finite_steps: int
    traces: list[Trace]


def gradients(step: int, rank: int, spoil: bool) -> Tensor:
    random = torch.Generator().manual_seed(100 * step + rank)
    x = torch.randn(sum(spec.numel for spec in SPECS), generator=random)
    if spoil and step == SPOILT and rank == 1:
        x[77] = math.nan
    return x


def held_by(engine: Engine) -> Iterator[tuple[str, Tensor]]:
    for text, feedback in engine.feedbacks.items():
        for what, tensors in feedback.state().items():
            for name, tensor in tensors.items():
                yield f"{text} {what} {name}", tensor


def host_run(simulation: Simulation, group: Group, spoil: bool) -> Run:
    engine = Engine(simulation.plan, group, CPU, 0, None, error_every=0)
    means = []
    for step in range(STEPS):
        x = gradients(step, group.rank, spoil)
        engine.exchange(Bucket(x, simulation.layouts[0]))
        engine.end_step()
        means.append(x)
    return Run(means, dict(held_by(engine)), engine.finite_steps, [])


def device_run(simulation: Simulation, group: Group, spoil: bool) -> Run:
    with on_device() as mode:
        kernels = opaque_kernels(pick(CPU))
        engine = Engine(simulation.plan, OpaqueGroup(group), DEVICE, 0, kernels, error_every=0)
        means, traces = [], []
        for step in range(STEPS):
            x = to_device(gradients(step, group.rank, spoil))
            mode.next_step()
            engine.exchange(Bucket(x, simulation.layouts[0]))
            engine.end_step()
            traces.append(mode.trace)
            means.append(to_host(x))
        mode.next_step()
        engine.catch_up()
        held = {name: to_host(tensor) for name, tensor in held_by(engine)}
        return Run(means, held, engine.finite_steps, traces)


def on_host(simulation: Simulation, spoil: bool) -> list[Run]:
    return run_ranks(simulation.world, lambda group: host_run(simulation, group, spoil))


def on_opaque(simulation: Simulation, spoil: bool) -> list[Run]:
    return run_ranks(simulation.world, lambda group: device_run(simulation, group, spoil))


def same(a: Tensor, b: Tensor) -> bool:
    return a.dtype == b.dtype and torch.equal(a.view(torch.int32), b.view(torch.int32))


@cache
def device_runs(text: str, route: str | None = None) -> list[Run]:
    return on_opaque(Simulation(text, SPECS, WORLD, route=route), True)


def check_bits(expected: Run, found: Run) -> None:
    for step, (a, b) in enumerate(zip(expected.means, found.means, strict=True)):
        assert same(a, b), f"step {step}"
    assert expected.finite_steps == found.finite_steps
    assert expected.held.keys() == found.held.keys()
    for name, tensor in expected.held.items():
        assert same(tensor, found.held[name]), name


@pytest.mark.parametrize("text", FREE + WAITING)
def test_bits_are_those_of_the_cpu(text: str) -> None:
    """In a step that is not finite too: what was held back stays what it was."""
    expected = on_host(Simulation(text, SPECS, WORLD), True)
    for host, device in zip(expected, device_runs(text), strict=True):
        check_bits(host, device)


@pytest.mark.parametrize("text", FREE)
def test_the_host_waits_for_nothing(text: str) -> None:
    for run in device_runs(text):
        for trace in run.traces[1:]:  # in the first one plans are compared and tables made
            assert trace.waits == []


@pytest.mark.parametrize("text", FREE)
def test_every_step_asks_the_same(text: str) -> None:
    """A graph of the device's acts could be captured: nothing that the host decides changes them."""
    for run in device_runs(text):
        assert run.traces[-1].acts == run.traces[-2].acts == run.traces[SPOILT].acts


def with_pending(simulation: Simulation, group: Group, device: torch.device) -> tuple[list[Tensor], bool]:
    """All means if something of an earlier plan is pending when a step is not finite; whether it still is."""
    place = to_device if device == DEVICE else Tensor.clone
    back = to_host if device == DEVICE else Tensor.clone
    kernels = opaque_kernels(pick(CPU)) if device == DEVICE else None
    engine = Engine(
        simulation.plan, OpaqueGroup(group) if kernels else group, device, 0, kernels, error_every=0
    )
    means = []
    for step in range(STEPS):
        if step == SPOILT:
            engine.pending_residual.put("b", place(torch.linspace(-1, 1, 130)))
        x = place(gradients(step, group.rank, True))
        engine.exchange(Bucket(x, simulation.layouts[0]))
        engine.end_step()
        means.append(back(x))
    return means, bool(engine.pending_residual)


@pytest.mark.parametrize("text", ["terngrad", "sign"])
def test_what_is_pending_joins_again_behind_a_step_that_is_not_finite(text: str) -> None:
    simulation = Simulation(text, SPECS, WORLD)

    def on_a_device(group: Group) -> tuple[list[Tensor], bool]:
        with on_device():
            return with_pending(simulation, group, DEVICE)

    expected = run_ranks(WORLD, lambda group: with_pending(simulation, group, CPU))
    for (host, owed), (device, owes) in zip(expected, run_ranks(WORLD, on_a_device), strict=True):
        assert all(same(a, b) for a, b in zip(host, device, strict=True))
        assert not owed
        assert not owes


@pytest.mark.parametrize("text", ["terngrad", "qsgd:4", "natural"])
def test_large_buffers_keep_their_places(text: str) -> None:
    """As a captured graph needs them: what kernels of a steady step are given lies where it lay before."""
    simulation = Simulation(text, SPECS, WORLD)

    def places(group: Group) -> list[list[tuple[str, int]]]:
        with on_device() as mode:
            engine = Engine(
                simulation.plan, OpaqueGroup(group), DEVICE, 0, opaque_kernels(pick(CPU)), error_every=0
            )
            x, found = to_device(gradients(0, group.rank, False)), []
            for step in range(STEPS):
                x.copy_(to_device(gradients(step, group.rank, False)))
                mode.next_step()
                engine.exchange(Bucket(x, simulation.layouts[0]))
                engine.end_step()
                found.append(mode.trace.places)
            return found

    for found in run_ranks(WORLD, places):
        assert found[-1]
        assert found[-1] == found[-2] == found[-3]


@pytest.mark.parametrize("text", WAITING)
def test_what_is_said_to_wait_waits(text: str) -> None:
    """So that the list in docs/gpu.md stays true."""
    assert any(trace.waits for run in device_runs(text) for trace in run.traces[1:])


@pytest.mark.parametrize("text", ["sign", "topk:0.1"])
def test_owners_encode_again_on_the_device(text: str) -> None:
    expected = on_host(Simulation(text, SPECS, WORLD, route="sharded"), True)
    for host, device in zip(expected, device_runs(text, "sharded"), strict=True):
        check_bits(host, device)
        assert not any(trace.waits for trace in device.traces[1:])


@pytest.mark.parametrize(("text", "most"), [("terngrad", 6), ("qsgd:4", 6), ("topk:0.1", 12)])
def test_launches(text: str, most: int) -> None:
    for run in device_runs(text):
        assert len(run.traces[-1].kernels) <= most


@pytest.mark.parametrize("text", ["terngrad", "sign", "rotated:3"])
def test_ranks_on_different_devices_agree(text: str) -> None:
    """One rank on the CPU and one on a device, as GPUs of two kinds would be: no library decides a bit."""
    simulation = Simulation(text, SPECS, WORLD)
    expected = on_host(simulation, True)

    def work(group: ThreadGroup) -> Run:
        return (device_run if group.rank else host_run)(simulation, group, True)

    for host, mixed in zip(expected, run_ranks(WORLD, work), strict=True):
        check_bits(host, mixed)


class _Full:
    """Kernels of a device that has no memory left, once `full` says so."""

    full = False

    def __init__(self, kernels: Any) -> None:
        self._kernels = kernels

    def __getattr__(self, name: str) -> Any:
        if self.full:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return getattr(self._kernels, name)


def test_out_of_memory_in_a_step_harms_no_error_feedback() -> None:
    simulation = Simulation("sign", SPECS, WORLD)

    def work(group: ThreadGroup) -> tuple[bool, str]:
        kernels, layout = _Full(pick(CPU).sign), simulation.layouts[0]
        engine = Engine(simulation.plan, group, CPU, 0, replace(pick(CPU), sign=kernels), error_every=0)
        engine.exchange(Bucket(gradients(0, group.rank, False), layout))
        engine.end_step()
        before = {name: tensor.clone() for name, tensor in held_by(engine)}
        kernels.full = group.rank == 1
        error: Exception = AssertionError("nothing failed")
        try:
            engine.exchange(Bucket(gradients(1, group.rank, False), layout))
        except RuntimeError as met:
            error = explain(met, engine.clock.current, group)
        after = dict(held_by(engine))
        return all(same(tensor, after[name]) for name, tensor in before.items()), str(error)

    (kept0, said0), (kept1, said1) = run_ranks(WORLD, work)
    assert kept0
    assert kept1
    assert "CUDA out of memory" in said1
    assert 'rank 1 failed in operation "encode"' in said0

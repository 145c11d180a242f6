"""The engine on thread ranks has the properties of the papers: T5, C1, C3, D1 and E2."""

from __future__ import annotations

import math

import pytest
import torch

from packing import Packed, one_tensor, pack
from simulation import (
    Gradients,
    Simulation,
    Source,
    assert_ranks_agree,
    assert_same,
    gaussian,
    same_bits,
    specs_of,
    sum_of,
)
from thinwire.groups.thread import ThreadGroup, run_ranks

SPECS = specs_of({"conv": (8, 3, 3, 3), "norm": 8, "fc": (37, 53), "bias": 37, "one": ()})
WORLDS = (1, 2, 3, 4, 5, 8)


def packed(text: str, source: Source, world: int) -> Packed:
    """What the ranks of a run send in its first step, made by hand."""
    return pack(text, one_tensor(2003, "fc"), [source(0, rank)["fc"] for rank in range(world)])


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("route", ["sharded", "allgather"])
def test_t5_levels_are_multiples_of_s_over_n(world: int, route: str) -> None:
    specs = specs_of({"fc": 2003})
    means = Simulation("terngrad", specs, world, route=route).run(gaussian(specs))
    assert_ranks_agree(means)
    mean = means[0][0]["fc"]
    sent = packed("terngrad", gaussian(specs), world)
    scale = sent.shared[0].view(torch.float32)
    total = sum_of(sent.own(rank, mean) / scale for rank in range(world))
    assert torch.equal(total, total.round())
    assert same_bits(mean, total * (scale / world) + 0.0)
    assert total.abs().max() <= world
    assert 3 <= len(mean.unique()) <= 2 * world + 1


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("text", ["terngrad", "terngrad:wire=2bit,block=32", "terngrad:scales=own"])
def test_c3_the_exchange_is_the_mean_of_the_decoded_payloads(world: int, text: str) -> None:
    specs = specs_of({"fc": 2003})
    route = "allgather" if "own" in text else "sharded"
    mean = Simulation(text, specs, world, route=route).run(gaussian(specs))[0][0]["fc"]
    sent = packed(text, gaussian(specs), world)
    expected = torch.stack([sent.own(rank, mean) for rank in range(world)]).double().mean(0)
    torch.testing.assert_close(mean.double(), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("route", ["allreduce", "sharded"])
def test_c3_dense_is_the_mean(world: int, route: str) -> None:
    means = Simulation("dense", SPECS, world, route=route).run(gaussian(SPECS))
    gradients = [gaussian(SPECS)(0, rank) for rank in range(world)]
    for name, mean in means[0][0].items():
        exact = torch.stack([g[name] for g in gradients]).double().mean(0)
        torch.testing.assert_close(mean.double(), exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("feedback", [None, "residual"])
def test_d1_parameters_stay_bit_identical(world: int, feedback: str | None) -> None:
    """5 steps of SGD on a least-squares problem, every rank with data of its own."""
    specs = specs_of({"w": (16, 9), "b": 16})
    simulation = Simulation({"w": "terngrad", "b": "bf16"}, specs, world, feedback=feedback)

    def work(group: ThreadGroup) -> Gradients:
        engine = simulation.engine(group)
        generator = torch.Generator().manual_seed(group.rank)
        x, y = torch.randn(32, 9, generator=generator), torch.randn(32, 16, generator=generator)
        w, b = torch.zeros(16, 9), torch.zeros(16)
        for _ in range(5):
            error = x @ w.T + b - y
            means = simulation.step(engine, {"w": error.T @ x / 32, "b": error.mean(0)})
            w, b = w - 0.1 * means["w"], b - 0.1 * means["b"]
        return {"w": w, "b": b}

    ranks = run_ranks(world, work)
    assert ranks[0]["w"].abs().sum() > 0
    for rank in ranks[1:]:
        assert_same(rank, ranks[0])


def test_c1_terngrad_converges_linearly_on_a_quadratic() -> None:
    """Strongly convex, exact gradients, one worker: eta <= 1 / (L (1 + omega)), omega = (sqrt n - 1) / 2."""
    n, steps = 16, 120
    curvature = torch.linspace(0.2, 1.0, n)
    target = torch.linspace(-3, 3, n)
    simulation = Simulation("terngrad:clip=off", specs_of({"x": n}), 1)
    engine = simulation.engine(ThreadGroup.make(1)[0])
    eta = 1 / (1.0 * (1 + (math.sqrt(n) - 1) / 2))
    x, distances = torch.zeros(n), []
    for _ in range(steps):
        distances.append((x - target).norm().item())
        x = x - eta * simulation.step(engine, {"x": curvature * (x - target)})["x"]
    assert distances[-1] / distances[0] < (1 - eta * curvature.min().item()) ** (steps / 2)
    early, late = distances[steps // 2] / distances[0], distances[-1] / distances[steps // 2]
    assert math.log(early) == pytest.approx(math.log(late), rel=0.3)


def test_ranks_draw_independently() -> None:
    """With equal gradients on 8 ranks the mean is 8 times less noisy than one draw, not as noisy."""
    specs = specs_of({"fc": 5000})
    x = torch.linspace(-1, 1, 5000)
    errors = [
        (Simulation("terngrad:off", specs, world).run(lambda step, rank: {"fc": x})[0][0]["fc"] - x)
        .square()
        .sum()
        for world in (1, 8)
    ]
    assert (errors[0] / errors[1]).item() == pytest.approx(8, rel=0.2)


@pytest.mark.parametrize("world", [1, 3])
def test_e2_what_is_held_back_is_sent_later(world: int) -> None:
    """sum of means * N = sum of all gradients - sum of what is still held back."""
    source, steps = gaussian(SPECS), 6
    simulation = Simulation({"fc": "terngrad:block=32", "*": "terngrad"}, SPECS, world, feedback="residual")

    def work(group: ThreadGroup) -> tuple[list[Gradients], Gradients]:
        engine = simulation.engine(group)
        means = [simulation.step(engine, source(step, group.rank)) for step in range(steps)]
        return means, engine.feedbacks["residual"].state()["residual"]

    ranks = run_ranks(world, work)
    for spec in SPECS:
        given = sum_of(source(t, r)[spec.name].double() for t in range(steps) for r in range(world))
        sent = world * sum_of(means[spec.name].double() for means in ranks[0][0])
        kept = sum_of(state[spec.name].double() for _, state in ranks).view(spec.shape)
        torch.testing.assert_close(sent, given - kept, rtol=1e-4, atol=1e-4)

"""What controls are for: diminishing theta keeps the rate of SGD (C2), the guard stops what diverges (E3)."""

from __future__ import annotations

import torch
from torch import Tensor

from simulation import Simulation, specs_of
from thinwire.exchange.engine import Engine
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.schedules.base import Observation

NUMEL, STEPS, SEEDS = 64, 400, range(3)
CURVATURE = torch.linspace(1.0, 4.0, NUMEL)  # f(x) = sum c x^2 / 2, so L = 4


def quadratic(codec: str, schedule: str | None, seed: int) -> float:
    """f at the end of SGD with eta_t ~ 1/t and noise of variance 1, without memory."""
    sim = Simulation(codec, specs_of({"x": NUMEL}), 1, feedback="none", schedule=schedule)

    def work(group: ThreadGroup) -> float:
        engine = sim.engine(group)
        noise = torch.Generator().manual_seed(1000 * seed + group.rank)
        x, values = torch.ones(NUMEL), []
        for step in range(STEPS):
            lr = 2.0 / (20 + step)
            if engine.scheduler.listens:
                engine.scheduler.observe(Observation.of(lr=lr))
            gradient = CURVATURE * x + torch.randn(NUMEL, generator=noise)
            x = x - lr * sim.step(engine, {"x": gradient})["x"]
            if step >= 0.9 * STEPS:
                values.append(float((CURVATURE * x * x).sum() / 2))
        return sum(values) / len(values)

    return run_ranks(1, work)[0]


def floor(codec: str, schedule: str | None = None) -> float:
    return sum(quadratic(codec, schedule, seed) for seed in SEEDS) / len(SEEDS)


def test_diminishing_theta_reaches_the_floor_of_sgd() -> None:
    """C2: within a factor of 1.5, theta_t <= L eta_t; a constant theta of 0.9 does not get there."""
    sgd = floor("dense")
    assert floor("topk:0.1") > 1.5 * sgd
    for codec in ("topk:0.1", "fft:0.9 >> dense"):
        diminished = floor(codec, "diminish:4")
        assert diminished < 1.5 * sgd
        assert diminished > sgd / 1.5


A = torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])


def three_workers(schedule: str | None, steps: int) -> tuple[Tensor, list[float]]:
    """E3: f_i = (a_i.x)^2 + |x|^2/4 from (1, 1, 1): top-1 without memory goes the wrong way for ever."""
    sim = Simulation("topk:0.34", specs_of({"x": 3}), 3, feedback="none", schedule=schedule)

    def work(group: ThreadGroup) -> tuple[Tensor, list[float]]:
        engine: Engine = sim.engine(group)
        x, levels = torch.ones(3, dtype=torch.float64), []
        for _ in range(steps):
            a = A[group.rank].double()
            loss = (a @ x) ** 2 + x.square().sum() / 4
            if engine.scheduler.listens:
                engine.scheduler.observe(Observation.of(loss))
            gradient = 2 * (a @ x) * a + x / 2
            x = x - 0.01 * sim.step(engine, {"x": gradient.float()})["x"].double()
            levels.append(engine.scheduler.compression_level)
        return x, levels

    return run_ranks(3, work)[0]


def test_the_guard_stops_a_divergence() -> None:
    """Without it x grows beyond all bounds; with it theta falls until x does too."""
    wild, _ = three_workers(None, 400)
    assert wild.norm() > 1e3
    tamed, levels = three_workers("guard", 400)
    assert min(levels) < 1
    assert tamed.norm() < 1

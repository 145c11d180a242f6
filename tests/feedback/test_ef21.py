"""EF21: ranks send what is new of their gradients; what all know of them is the same everywhere."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor

from simulation import Simulation, assert_ranks_agree, assert_same, gaussian, same_bits, specs_of, sum_of
from thinwire.exchange.state import gathered_state, load_state
from thinwire.feedback.base import Ownership
from thinwire.feedback.residual import Ef21
from thinwire.groups.thread import ThreadGroup, run_ranks

SPECS = specs_of({"w": (20, 30), "b": 40})
SOURCE = gaussian(SPECS, seed=5)


def top(x: Tensor, k: int) -> Tensor:
    """Top-k by torch's own sort: the oracle's compressor."""
    kept = torch.zeros_like(x)
    kept[x.abs().argsort(descending=True, stable=True)[:k]] = 1
    return x * kept


def oracle(world: int, steps: int, ratio: float) -> list[dict[str, Tensor]]:
    """h_i = h_i + C(g_i - h_i), h = mean of h_i, written from the paper in float64."""
    told = {s.name: [torch.zeros(s.numel).double() for _ in range(world)] for s in SPECS}
    found = []
    for step in range(steps):
        for rank in range(world):
            for spec in SPECS:
                g, h = SOURCE(step, rank)[spec.name].flatten().double(), told[spec.name]
                h[rank] = h[rank] + top(g - h[rank], round(ratio * spec.numel))
        found.append({s.name: torch.stack(told[s.name]).mean(0).view(s.shape) for s in SPECS})
    return found


@pytest.mark.parametrize("world", [1, 3])
def test_it_is_the_algorithm_of_the_paper(world: int) -> None:
    means = Simulation("topk:0.1", SPECS, world, feedback="ef21").run(SOURCE, 6)
    assert_ranks_agree(means)
    for found, expected in zip(means[0], oracle(world, 6, 0.1), strict=True):
        for name in found:
            torch.testing.assert_close(found[name].double(), expected[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("codec", ["topk:0.1", "sign", "fft:0.8", "powersgd:2", "dct:64 >> topk:0.2"])
def test_of_a_constant_gradient_everything_is_known_in_the_end(codec: str) -> None:
    """A contraction: the distance to the gradient falls step by step, without feedback it would not."""
    gradient = SOURCE(0, 0)
    sim = Simulation(codec, SPECS, 2, feedback="ef21")
    means = sim.run(lambda step, rank: {n: g * (1 + rank) for n, g in gradient.items()}, 60)[0]
    errors = [sum(float((mean[n] - 1.5 * gradient[n]).norm()) for n in mean) for mean in means]
    assert errors[-1] < 0.05 * errors[0]


def test_loss_scales_do_not_matter() -> None:
    def run(scales: tuple[float, ...]) -> list[dict[str, Tensor]]:
        sim = Simulation("topk:0.1", SPECS, 1, feedback="ef21")
        engine, found = sim.engine(ThreadGroup.make(1)[0]), []
        for step, scale in enumerate(scales):
            gradients = {name: scale * g for name, g in SOURCE(step, 0).items()}
            found.append({name: m / scale for name, m in sim.step(engine, gradients, scale).items()})
        return found

    for plain, scaled in zip(run((1.0, 1.0, 1.0)), run((1024.0, 512.0, 65536.0)), strict=True):
        assert_same(plain, scaled)


def test_a_step_that_is_skipped_leaves_no_trace() -> None:
    sim = Simulation("topk:0.1", SPECS, 2, feedback="ef21")

    def run(group: ThreadGroup, bad: bool) -> dict[str, Tensor]:
        engine = sim.engine(group)
        sim.step(engine, SOURCE(0, group.rank))
        if bad:
            gradients = dict(SOURCE(1, group.rank))
            gradients["w"][0, 0] = torch.inf
            assert not torch.isfinite(sim.step(engine, gradients)["w"]).all()
        return sim.step(engine, SOURCE(2, group.rank))

    for good, again in zip(
        run_ranks(2, lambda g: run(g, False)), run_ranks(2, lambda g: run(g, True)), strict=True
    ):
        assert_same(good, again)


def saved(group: ThreadGroup, steps: int) -> tuple[Any, dict[str, Tensor]]:
    sim = Simulation("topk:0.1", SPECS, 3, feedback="ef21")
    engine = sim.engine(group)
    for step in range(steps):
        sim.step(engine, SOURCE(step, group.rank))
    file = io.BytesIO()
    torch.save(gathered_state(engine), file)
    file.seek(0)
    return torch.load(file, weights_only=True), sim.step(engine, SOURCE(steps, group.rank))


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_resuming_in_any_world(world: int) -> None:
    """What is shared is the same for all, what is a rank's own adds up to zero as before."""
    assert Ef21.state_kinds == {"estimate": Ownership.SHARED, "deviation": Ownership.PER_RANK}
    state, after = run_ranks(3, lambda group: saved(group, 4))[0]
    assert list(state["shared"]["ef21"]) == ["estimate"]
    assert list(state["ranks"][0]["ef21"]) == ["deviation"]
    sim = Simulation("topk:0.1", SPECS, world, feedback="ef21")

    def resumed(group: ThreadGroup) -> tuple[dict[str, dict[str, Tensor]], dict[str, Tensor]]:
        engine = sim.engine(group)
        load_state(engine, state)
        return engine.feedbacks["ef21"].state(), sim.step(engine, SOURCE(4, group.rank % 3))

    ranks = run_ranks(world, resumed)
    for spec in SPECS:
        for held, _ in ranks:
            assert same_bits(held["estimate"][spec.name], state["shared"]["ef21"]["estimate"][spec.name])
        total = sum_of(held["deviation"][spec.name] for held, _ in ranks)
        assert float(total.abs().max()) < 1e-5
    if world == 3:
        assert_same(ranks[0][1], after)

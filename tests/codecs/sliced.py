"""What the tests of GradiVeQ share: a codec of small slices, and gradients that lie in few dimensions."""

from __future__ import annotations

from typing import Any

import torch

from simulation import Gradients, Simulation, specs_of
from thinwire.exchange.engine import Engine
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.tensors import Spec

M, D, LT, P = 32, 8, 3, 4
CODEC = f"gradiveq:4,slice={M},sample={LT},compress={P},stride=1"
SPECS = specs_of({"conv": (16, 12, 3, 3), "second": (8, 20, 3, 3), "odd": 1000, "bias": 7})
CYCLE = LT + P


def low_rank(specs: tuple[Spec, ...], rank: int = D, noise: float = 0.0, mean: float = 0.5) -> Any:
    """Gradients whose slices lie in a space of few dimensions, the same in every step and on every rank."""
    axes = torch.randn(rank, M, generator=torch.Generator().manual_seed(7))
    offset = mean * torch.randn(M, generator=torch.Generator().manual_seed(8))

    def source(step: int, rank_: int) -> Gradients:
        generator = torch.Generator().manual_seed(1009 * step + rank_)
        made = {}
        for spec in specs:
            count = -(-spec.numel // M)
            rows = torch.randn(count, rank, generator=generator) @ axes + offset
            rows += noise * torch.randn(count, M, generator=generator)
            made[spec.name] = rows.flatten()[: spec.numel].view(spec.shape)
        return made

    return source


def true_mean(source: Any, step: int, world: int) -> Gradients:
    parts = [source(step, rank) for rank in range(world)]
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


def engine_after(simulation: Simulation, source: Any, steps: int) -> list[tuple[Engine, list[Gradients]]]:
    def work(group: ThreadGroup) -> tuple[Engine, list[Gradients]]:
        engine = simulation.engine(group)
        return engine, [simulation.step(engine, source(step, group.rank)) for step in range(steps)]

    return run_ranks(simulation.world, work)

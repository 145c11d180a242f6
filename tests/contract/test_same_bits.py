"""Results depend on the numbers alone: not on where they lie in memory, on threads, or on the kernels.

Every codec of the catalog, in every phase it has, on the same numbers placed 0 to 15 elements into a buffer,
with 1, 2 and 4 threads and all kernels that run here. Two ranks: what is added up adds in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from cases import texts
from torch import Tensor

from simulation import Gradients, Simulation, gaussian, same_bits, specs_of
from thinwire.engine import Bucket
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import backends
from thinwire.state import local_state

WORLD, STEPS = 2, 7
PLACES = 16
THREADS = (1, 2, 4)
# Odd sizes; the largest is above the 32,768 elements from which torch itself works with several threads.
SPECS = specs_of({"bias": 13, "matrix": (67, 131), "conv": (37, 11, 3, 3), "wide": (257, 131)})
LEARNING = (
    "gradiveq:8,sample=2,compress=3,layers=all",
    "gradiveq:4,slice=32,sample=2,compress=3,layers=all,order=auto,energy=0.9",
    "gradiveq:8,sample=2,compress=3,layers=all >> qsgd:8",
    "powersgd:1",
    "powersgd:3,start=2",
    "powersgd:9 >> bf16",
    "dct >> topk:0.15 >> rangefloat:10",
    "dct:tensor >> qsgd:8",
    "fft:0.85,chunk=tensor",
)
MEMORIES = {"dgc": "momentum:0.9,clip=1.0", "gradiveq": "residual"}


@dataclass(frozen=True)
class Lying:
    """How a run has its numbers: elements into a buffer, threads of torch, kernels."""

    place: int = 0
    threads: int = 1
    kernels: str = "reference"

    def __str__(self) -> str:
        return f"{self.place} elements into a buffer, {self.threads} threads, {self.kernels}"


def cases() -> list[str]:
    short = {"dgc": "dgc:0.05,warmup=3"}
    return [*(short.get(text, text) for text in texts()), *LEARNING]


def lyings(kernels: str) -> Iterator[Lying]:
    """The native kernels everywhere; the reference, which is slow, at a few places."""
    count = 3 if kernels == "reference" else PLACES
    for number in range(count):
        yield Lying(number * (PLACES // count), THREADS[number % len(THREADS)], kernels)


@cache
def run(text: str, lying: Lying) -> dict[str, Tensor]:
    """Everything a run leaves: the means of every step, what is held back and what was learnt, by rank."""
    memory = MEMORIES.get(text.partition(":")[0])
    simulation = Simulation(text, SPECS, WORLD, memory=memory, kernels=backends()[lying.kernels])
    source, (layout,) = gaussian(SPECS), simulation.layouts
    steps = STEPS if text in LEARNING or "dgc" in text else 2

    def work(group: ThreadGroup) -> dict[str, Tensor]:
        engine, left = simulation.engine(group), {}
        room = torch.zeros(layout.numel + PLACES)
        for step in range(steps):
            buffer = room[lying.place : lying.place + layout.numel]
            buffer.copy_(_flat(source(step, group.rank)))
            engine.exchange(Bucket(buffer, layout))
            engine.end_step()
            left |= {f"mean of {s.name}, step {step}": buffer[p].clone() for s, p in _pairs(layout)}
        state = local_state(engine)
        for kind in ("memories", "notes"):
            left |= {f"{kind}: {a} {b}": t for a, held in state[kind].items() for b, t in held.items()}
        return left

    torch.set_num_threads(lying.threads)
    try:
        ranks = run_ranks(WORLD, work)
    finally:
        torch.set_num_threads(1)
    return {f"rank {rank}: {what}": t for rank, left in enumerate(ranks) for what, t in left.items()}


@pytest.mark.parametrize("kernels", list(backends()))
@pytest.mark.parametrize("text", cases())
def test_results_depend_on_the_numbers_alone(text: str, kernels: str) -> None:
    expected = run(text, Lying(kernels=next(iter(backends()))))
    for lying in lyings(kernels):
        found = run(text, lying)
        assert found.keys() == expected.keys()
        differing = [what for what in found if not same_bits(found[what], expected[what])]
        assert not differing, f"{lying}: {differing[0]} differs, and {len(differing) - 1} more"


def _flat(gradients: Gradients) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients.values()])


def _pairs(layout):
    return zip(layout.specs, layout.slices, strict=True)

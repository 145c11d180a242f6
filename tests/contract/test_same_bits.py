"""Results depend on the numbers alone: not on where they lie in memory, on threads, or on the kernels.

Every codec of the catalog, in every phase it has, on the same numbers placed 0 to 15 elements into a buffer,
with 1, 2 and 4 threads and all kernels that run here. Two ranks: what is added up adds in one order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from cases import VARIANTS, texts
from torch import Tensor

from simulation import Simulation, flat, gaussian, same_bits, specs_of
from thinwire.exchange.engine import Bucket
from thinwire.exchange.state import local_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import backends

WORLD, PLACES, THREADS = 2, 16, (1, 2, 4)
# Odd sizes; the largest is above the 32,768 elements from which torch itself works with several threads.
SPECS = specs_of({"bias": 13, "matrix": (67, 131), "conv": (19, 11, 3, 3), "wide": (257, 129)})
PHASES = {  # chains, and codecs that go through several phases: with the steps they need
    "gradiveq:8,slice=64,sample=2,compress=2,layers=all": 5,
    "gradiveq:4,slice=32,sample=2,compress=2,layers=all,order=auto,energy=0.9": 5,
    "gradiveq:8,slice=64,sample=1,compress=2,layers=all >> qsgd:8": 3,
    "powersgd:1,start=1": 3,
    "powersgd:9 >> bf16": 2,
    "dgc:0.05,warmup=2": 3,
    "dct >> topk:0.15 >> rangefloat:10": 2,
    "dct:tensor >> qsgd:8": 2,
    "fft:0.85,chunk=tensor": 2,
    "sign:block=column": 2,
}
FEEDBACKS = {"dgc": "momentum:0.9,clip=1.0", "gradiveq": "residual"}
EVERY_ALIGNMENT = (0, 1, 2, 4, 7, 8, 15)
FEW = 3  # places that kernels other than the best are tried at


@dataclass(frozen=True)
class Lying:
    """How a run has its numbers: elements into a buffer, threads of torch, kernels."""

    place: int = 0
    threads: int = 1
    kernels: str = "reference"

    def __str__(self) -> str:
        return f"{self.place} elements into a buffer, {self.threads} threads, {self.kernels}"


def steps_of() -> dict[str, int]:
    """Every codec of the catalog and the chains above."""
    return {text: 1 for text in texts() if text not in VARIANTS} | PHASES


def lyings(steps: int) -> Iterator[Lying]:
    """The best kernels everywhere (runs of several steps: once for every alignment), the others at a few."""
    best, *others = backends()
    for place in range(PLACES) if steps == 1 else EVERY_ALIGNMENT:
        yield Lying(place, THREADS[place % len(THREADS)], best)
    for kernels in others:
        for number in range(FEW if kernels != "reference" else 1):
            yield Lying(5 * (number + 1), THREADS[-number - 1], kernels)


def run(text: str, steps: int, lying: Lying) -> dict[str, Tensor]:
    """Everything a run leaves: the means of every step, what is held back and what was learnt, by rank."""
    feedback = FEEDBACKS.get(text.partition(":")[0])
    simulation = Simulation(text, SPECS, WORLD, feedback=feedback, kernels=backends()[lying.kernels])
    source, (layout,) = gaussian(SPECS), simulation.layouts

    def work(group: ThreadGroup) -> dict[str, Tensor]:
        engine, left = simulation.engine(group), {}
        buffer = torch.zeros(layout.numel + PLACES)[lying.place :][: layout.numel]
        for step in range(steps):
            torch.cat([gradient.flatten() for gradient in source(step, group.rank).values()], out=buffer)
            engine.exchange(Bucket(buffer, layout))
            engine.end_step()
            for name, piece in zip(layout.names, layout.slices, strict=True):
                left[f"mean of {name}, step {step}"] = buffer[piece].clone()
        state = local_state(engine)
        for text, held in state["feedback"].items():
            left |= {f"{text}: {what}": t for what, t in flat(held).items()}
        left |= {f"learned: {what}": t for what, t in flat(state["learned"]).items()}
        return left

    torch.set_num_threads(lying.threads)
    try:
        ranks = run_ranks(WORLD, work)
    finally:
        torch.set_num_threads(1)
    return {f"rank {rank}: {what}": t for rank, left in enumerate(ranks) for what, t in left.items()}


@pytest.mark.parametrize(("text", "steps"), steps_of().items())
def test_results_depend_on_the_numbers_alone(text: str, steps: int) -> None:
    expected = None
    for lying in lyings(steps):
        found = run(text, steps, lying)
        expected = expected or found
        assert found.keys() == expected.keys()
        differing = [what for what in found if not same_bits(found[what], expected[what])]
        assert not differing, f"{lying}: {differing[0]} differs, and {len(differing) - 1} more"

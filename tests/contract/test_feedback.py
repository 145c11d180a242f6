"""E2: error feedback around any codec sends in the end all that it was given, less what it still holds."""

from __future__ import annotations

import pytest
import torch
from cases import pairs
from torch import Tensor

import thinwire as tw
from packing import bound
from simulation import Gradients, Simulation, gaussian, specs_of
from thinwire.codecs.coder import Merge
from thinwire.feedback.residual import OWNER
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.tensors import Layout, Spec

SPECS = specs_of({"matrix": (17, 31), "row": 33, "one": (), "empty": 0})
STEPS = 6
KINDS = ("residual", OWNER)


def run(simulation: Simulation) -> list[tuple[list[Gradients], Gradients, Gradients]]:
    """By rank: the means of every step, and what it holds back at the end, of gradients and as an owner."""

    def work(group: ThreadGroup) -> tuple[list[Gradients], Gradients, Gradients]:
        engine = simulation.engine(group)
        means = [simulation.step(engine, gaussian(SPECS)(step, group.rank)) for step in range(STEPS)]
        held = {
            text: engine.feedbacks[text].state()["residual"] for text in KINDS if text in engine.feedbacks
        }
        return means, held.get("residual", {}), held.get(OWNER, {})

    return run_ranks(simulation.world, work)


def in_place(text: str, spec: Spec, held: Tensor) -> Tensor:
    """What a memory holds of a tensor, in the tensor's own coordinates."""
    codec = bound(text, Layout.packed([spec]))
    if not codec.stages or not codec.fixed:
        return held.view(spec.shape)
    codec.finish(held.clone(), numbers := torch.zeros(spec.numel))
    return numbers.view(spec.shape)


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize(("text", "route"), pairs())
def test_e2_telescoping(text: str, route: str, world: int) -> None:
    """N * sum of means = sum of gradients - sum of residuals - N * what owners hold of the means."""
    if world > 1 and tw.parse(text).merge is Merge.SUM:
        pytest.skip("float payloads are rounded once more where they are added")
    simulation = Simulation(text, SPECS, world, feedback="residual", route=route)
    ranks = run(simulation)
    entries = simulation.plan.entries
    holding = {e.spec.name for e in entries if e.feedback == "residual" and e.spec.numel}
    assert set(ranks[0][1]) == holding
    for spec in SPECS:
        given = sum(gaussian(SPECS)(t, r)[spec.name].double() for t in range(STEPS) for r in range(world))
        sent = world * sum(mean[spec.name].double() for mean in ranks[0][0])
        held = torch.zeros(spec.shape).double()
        for _, state, owned in ranks:
            held += in_place(text, spec, state[spec.name]) if spec.name in holding else 0.0
            held += world * in_place(text, spec, owned[spec.name]) if spec.name in owned else 0.0
        scale = 1 + held.abs().max().item() if spec.numel else 1.0
        torch.testing.assert_close(sent, given - held, rtol=1e-5, atol=1e-5 * scale)

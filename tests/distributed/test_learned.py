"""Codecs that learn (gradiveq, powersgd) in real DDP over gloo: buckets, phases, stopped and resumed."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from launch import Teams
from test_resume import FIRST, SECOND, begin, go_on
from torch import Tensor
from training import batch, convolutions, fit, mlp, parts_of, wrap

from thinwire.groups.base import all_reduce_bytes
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy

SHORT = "slice=32,sample=2,compress=3"
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "gradiveq": (f"gradiveq:4,{SHORT},layers=all", {}),
    "gradiveq residual": (f"gradiveq:4,{SHORT},layers=all", {"feedback": "residual"}),
    "gradiveq auto energy": (f"gradiveq:4,{SHORT},layers=all,order=auto,energy=0.9", {}),
    "gradiveq bf16": (f"gradiveq:4,{SHORT},layers=all >> bf16", {}),
    "gradiveq ternary": (f"gradiveq:4,{SHORT},layers=all >> ternary", {}),
    "powersgd": ("powersgd:2", {}),
    "powersgd later": ("powersgd:2,start=2 >> bf16", {}),
}
STEPS = 12


def train(codec: str, options: dict[str, Any], images: bool) -> tuple[Tensor, list[float], dict[str, Any]]:
    net = convolutions() if images else mlp()
    with wrap(net, codec, **options) as it, parts_of(500):
        assert it.compressor is not None
        losses = fit(it.model, STEPS, make_batch=(lambda step: batch(step, 3, 8, 8)) if images else None)
        it.compressor.wait()
        return it.parameters(), losses, it.compressor.report().to_dict()


@pytest.mark.parametrize(("world", "images"), [(2, False), (3, True)], ids=["2-mlp", "3-convolutions"])
@pytest.mark.parametrize("run", RUNS)
def test_ranks_end_with_the_same_bits_and_learn(teams: Teams, run: str, world: int, images: bool) -> None:
    answers = teams(world).run(train, *RUNS[run], images)
    assert all(torch.equal(parameters, answers[0][0]) for parameters, _, _ in answers)
    losses = torch.tensor([losses for _, losses, _ in answers]).mean(0)
    assert losses[-1] < 0.7 * losses[0]


def test_the_report_tells_what_was_learnt(teams: Teams) -> None:
    """The captured energy, and bytes averaged over the phases."""
    codec, options = RUNS["gradiveq"]
    _, _, report = teams(2).run(train, codec, options, False)[0]
    layers = {layer["name"]: layer for layer in report["layers"]}
    assert 0.2 < layers["2.weight"]["learnt"]["energy"] <= 1
    assert layers["4.weight"]["learnt"] == {}
    plan = Plan.of(Policy.of(codec), Model.of(mlp()), 2)
    alone = Plan(tuple(e for e in plan.entries if e.spec.name == "2.weight"), 2)
    expected = sum(alone.step_bytes(step=step) for step in range(STEPS)) / STEPS
    assert layers["2.weight"]["bytes_per_step"] == pytest.approx(expected, rel=0.02)
    assert layers["4.weight"]["bytes_per_step"] == pytest.approx(all_reduce_bytes(4 * 650, 2), rel=0.01)


@pytest.mark.parametrize(
    ("run", "world"),
    [
        ("gradiveq residual", 2),
        ("gradiveq residual", 3),
        ("gradiveq ternary", 2),
        ("powersgd", 3),
        ("fp16", 3),
    ],
)
def test_stopped_and_resumed_gives_the_same_bits(teams: Teams, run: str, world: int) -> None:
    """With three ranks a ring adds in another order when DDP rebuilds its buckets: "sharded" does not."""
    team = teams(world)
    codec, options = RUNS.get(run, (run, {}))
    options = options if world == 2 else {**options, "route": "sharded"}
    expected = team.run(straight, codec, options)[0]
    local, gathered = zip(*team.run(begin, codec, options), strict=True)
    for files in (list(local), [gathered[0]]):
        resumed = team.run(go_on, codec, options, files)
        assert all(torch.equal(parameters, expected) for parameters in resumed)


def straight(codec: str, options: dict[str, Any]) -> Tensor:
    with wrap(mlp(), codec, **options) as it:
        fit(it.model, FIRST + SECOND)
        return it.parameters()

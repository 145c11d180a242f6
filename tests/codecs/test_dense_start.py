"""A dense start: everything is sent for some steps, then the codec compresses as if it began there."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import Tensor

from simulation import Gradients, Simulation, assert_ranks_agree, assert_same, gaussian, specs_of
from thinwire.codecs.codec import parse
from thinwire.errors import CodecError, PlanError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import mean_bytes
from thinwire.plans.policy import Policy

SPECS = specs_of({"conv": (16, 12, 3, 3), "fc": (40, 70)})
START = 3
BIASED = ["topk:0.05", "dgc:0.05,warmup=4", "sign", "fft:0.85,chunk=64", "powersgd:2", "topk:0.1 >> bf16"]
LEARNED = "gradiveq:4,slice=32,sample=2,compress=3,layers=all,stride=1"


def with_start(codec: str, start: int | str = START) -> str:
    first, arrow, rest = codec.partition(" >> ")
    return f"{first}{',' if ':' in first else ':'}start={start}{arrow}{rest}"


def means_of(
    codec: str, steps: int, first: int = 0, world: int = 3, feedback: str | None = None
) -> list[Gradients]:
    source = gaussian(SPECS)
    means = Simulation(codec, SPECS, world, feedback).run(
        lambda step, rank: source(first + step, rank), steps
    )
    assert_ranks_agree(means)
    return means[0]


def true_mean(step: int, world: int = 3) -> Gradients:
    parts = [gaussian(SPECS)(step, rank) for rank in range(world)]
    return {name: torch.stack([part[name] for part in parts]).mean(0) for name in parts[0]}


@pytest.mark.parametrize("codec", [*BIASED, LEARNED])
def test_everything_is_sent_in_the_start(codec: str) -> None:
    feedback = "none" if codec.startswith("dgc") else None
    for step, means in enumerate(means_of(with_start(codec), START, feedback=feedback)):
        for name, expected in true_mean(step).items():
            torch.testing.assert_close(means[name], expected, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("codec", [*BIASED[:1], *BIASED[2:], LEARNED])
def test_behind_it_the_codec_is_as_without(codec: str) -> None:
    """Nothing is held back in the start: halves of two workers are exact."""
    later = means_of(with_start(codec), START + 4, world=2)[START:]
    for with_, without in zip(later, means_of(codec, 4, first=START, world=2), strict=True):
        assert_same(with_, without)


def test_a_start_with_momentum_is_momentum_sgd() -> None:
    """Nothing is masked while everything is sent: u = m u + g, and all of it arrives."""
    means = means_of("dgc:0.05,warmup=0,start=4", 4)
    velocity = {name: torch.zeros_like(g) for name, g in means[0].items()}
    for step, mean in enumerate(means):
        for name, g in true_mean(step).items():
            velocity[name] = 0.9 * velocity[name] + g
            torch.testing.assert_close(mean[name], velocity[name], rtol=1e-5, atol=1e-5)


def test_momentum_is_masked_behind_the_start() -> None:
    """After the start a worker's u is masked where it sent: dgc against a few lines of torch."""
    source, start, steps = gaussian(SPECS[1:]), 2, 5
    means = Simulation(f"dgc:0.05,warmup=0,start={start}", SPECS[1:], 1).run(source, steps)[0]
    u = v = torch.zeros(SPECS[1].numel)
    for step in range(steps):
        u = 0.9 * u + source(step, 0)["fc"].flatten()
        v = v + u
        sent = v if step < start else _largest(v, round(0.05 * v.numel()))
        v = v - sent
        u = u if step < start else torch.where(sent != 0, 0.0, u)
        torch.testing.assert_close(means[step]["fc"].flatten(), sent, rtol=1e-5, atol=1e-5)


def _largest(v: Tensor, count: int) -> Tensor:
    sent = torch.zeros_like(v)
    chosen = v.abs().topk(count).indices
    sent[chosen] = v[chosen]
    return sent


@pytest.mark.parametrize("feedback", ["residual", "ef21", "momentum:mask=off"])
def test_every_memory_goes_through_a_start(feedback: str) -> None:
    for codec in ("fft:0.5,chunk=64,start=2", "sign:start=2"):
        for means in means_of(codec, 4, feedback=feedback):
            assert all(bool(torch.isfinite(t).all()) for t in means.values())


def test_half_precision_travels_in_half_precision() -> None:
    specs = specs_of({"fc": (40, 70)}, torch.bfloat16)
    simulation = Simulation("topk:0.05,start=2", specs, 2)
    means = simulation.run(gaussian(specs), 3)
    assert_ranks_agree(means)
    half = simulation.plan.step_bytes(step=0)
    assert half < 0.6 * Simulation("topk:0.05,start=2", specs_of({"fc": (40, 70)}), 2).plan.step_bytes(step=0)


@pytest.mark.parametrize("codec", BIASED)
def test_a_plan_knows_the_bytes(codec: str) -> None:
    """What the plan says before the run is what the group counts in it, in the start and behind it."""
    simulation = Simulation(with_start(codec), SPECS, 2)
    source = gaussian(SPECS)

    def work(group: ThreadGroup) -> list[int]:
        engine, sent = simulation.engine(group), [0]
        for step in range(START + 2):
            simulation.step(engine, source(step, group.rank))
            sent.append(engine.group.step_bytes)
        return [after - before for before, after in pairwise(sent)]

    counted = run_ranks(2, work)[0]
    assert counted == [simulation.plan.step_bytes(step=step) for step in range(START + 2)]
    assert counted[0] > 2 * counted[-1]
    assert mean_bytes(simulation.plan.stretches(horizon=START + 2)) == sum(counted) / (START + 2)


def test_parts_of_a_run() -> None:
    assert parse("topk:0.01,start=5%", 400).canonical == parse("topk:0.01,start=20").canonical
    assert parse("dgc:warmup=2.5%,start=1%", 1000).canonical == parse("dgc:warmup=25,start=10").canonical
    policy = Policy.of({"fc": "sign:start=10%", "*": "powersgd:4,start=1%"}, total_steps=200)
    assert [codec.canonical for codec in policy.codecs] == [
        parse("sign:start=20").canonical,
        parse("powersgd:4,start=2").canonical,
    ]


@pytest.mark.parametrize(
    ("text", "total_steps", "sentence"),
    [
        (
            "topk:0.01,start=5%",
            None,
            "start=5% is a part of the run, whose length nobody told: pass total_steps=",
        ),
        ("dgc:warmup=x%", 100, 'warmup="x%" does not fit'),
        ("sign:start=101%", 100, 'start="101%" does not fit'),
        ("topk:5%", 100, 'ratio="5%" does not fit'),
        ("fft:0.85,start=-1", None, "fft: start=-1 must be a number of steps"),
    ],
)
def test_what_is_no_start(text: str, total_steps: int | None, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        parse(text, total_steps)
    assert sentence in str(caught.value)


def test_a_run_has_steps() -> None:
    with pytest.raises(PlanError, match="total_steps=0 must be the number of steps"):
        Policy.of("topk:0.01,start=5%", total_steps=0)

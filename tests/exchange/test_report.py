"""Reports: what is counted as a step, the phase and what follows it, and how numbers are said."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from thinwire.exchange.report import Report, ahead
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.hooks.compressor import Compressor
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy

CPU = torch.device("cpu")
T = TypeVar("T")
NET = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Linear(64, 10))


def run(codec: str, steps: int, look: Callable[[Compressor], T], world: int = 2) -> T:
    parameters: list[Tensor] = list(NET.parameters())

    def work(group: ThreadGroup) -> T:
        with Compressor(Policy.of(codec), group, CPU, NET) as made:
            for step in range(steps):
                generator = torch.Generator().manual_seed(10 * step + group.rank)
                buffer = torch.randn(sum(p.numel() for p in parameters), generator=generator)
                made.queue.exchange(buffer, parameters, True, lambda: None)
                made.wait()
            return look(made)

    return run_ranks(world, work)[0]


@pytest.mark.parametrize("codec", ["topk:0.01", "gradiveq:8"])
def test_saving_is_no_step(codec: str) -> None:
    """3 saves made 16,576 bytes a step of 3,482; what is sent in steps is exactly as planned."""

    def look(made: Compressor) -> None:
        before = made.report()
        assert before.bytes_per_step == made.plan.step_bytes(step=0)
        for _ in range(3):
            made.state_dict(gather=True)
        after = made.report()
        assert after.bytes_per_step == before.bytes_per_step
        assert after.other_bytes > before.other_bytes > 0, "comparing plans, then saving"
        assert f"{after.other_bytes:,} bytes beside the steps" in str(after)

    run(codec, 2, look)


def test_the_phase_is_named_with_what_follows_it() -> None:
    report = run("gradiveq:8", 1, lambda made: made.report())
    assert report.ratio == pytest.approx(1.0)
    assert report.phase == "sample"
    assert [(later.phase, later.first) for later in report.ahead] == [
        ("refresh 32", 100),
        ("project 32", 101),
    ]
    assert report.ahead[-1].ratio > 6
    told = str(report)
    assert "phase sample, then" in told
    assert f"project 32 from step 101: about {report.ahead[-1].bytes_per_step:,} bytes a step, 6." in told
    assert report.to_dict()["ahead"][1]["phase"] == "project 32"


def test_phases_that_are_over_are_not_ahead() -> None:
    made = Plan.of(Policy.of("gradiveq:8"), Model.of(NET), 2)
    assert [(later.phase, later.first) for later in ahead(made, 300)] == [
        ("sample", 500),
        ("refresh 32", 600),
    ]
    warm = Plan.of(Policy.of("dgc:0.01,warmup=10"), Model.of(NET), 2)
    assert [later.phase for later in ahead(warm, 3)] == ["0.015", "0.01"]
    assert ahead(warm, 50) == ()
    assert ahead(Plan.of(Policy.of("terngrad"), Model.of(NET), 2), 0) == ()


def test_bits_are_said_to_be_sent_bits() -> None:
    told = str(run("dense", 1, lambda made: made.report(), world=4))
    assert "bits: sent per element, in both directions; fp32 all-reduce sends 48" in told


def test_one_is_singular() -> None:
    told = str(run("dense", 1, lambda made: made.report(), world=1))
    assert "dense on 1 worker, 1 step, kernels" in told
    assert "from each of 1 worker" in str(Plan.of(Policy.of("dense"), Model.of(NET), 1))


def test_scalars_suit_any_logger() -> None:
    """Plain numbers, grouped by the slashes in their names."""
    report = run("topk:0.01", 2, lambda made: made.report())
    scalars = report.scalars()
    assert scalars["thinwire/ratio"] == report.ratio
    assert scalars["thinwire/theta"] == pytest.approx(0.99)
    sizes = {layer.name: layer.bytes_per_step for layer in report.layers}
    assert scalars["thinwire/bytes_per_step/1.weight"] == sizes["1.weight"]
    assert 0 < scalars["thinwire/relative_error/1.weight"] < 1
    assert scalars["thinwire/seconds_per_step/encode"] == report.seconds["encode"] / 2
    assert all(type(value) is float and name.startswith("thinwire/") for name, value in scalars.items())


def net_of(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)).to(dtype)


def report_of_dtype(codec: str, net: nn.Module) -> Report:
    parameters: list[Tensor] = list(net.parameters())

    def work(group: ThreadGroup) -> Report:
        with Compressor(Policy.of(codec), group, CPU, net) as made:
            for dtype in dict.fromkeys(p.dtype for p in parameters):
                of_it = [p for p in parameters if p.dtype == dtype]
                buffer = torch.randn(sum(p.numel() for p in of_it)).to(dtype)
                made.queue.exchange(buffer, of_it, of_it[-1] is parameters[-1], lambda: None)
            made.wait()
            return made.report()

    return run_ranks(2, work)[0]


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.float32, "fp32"),
        (torch.bfloat16, "bf16"),
        (torch.float16, "fp16"),
        (torch.float64, "fp64"),
    ],
)
def test_the_ratio_is_against_the_gradients_as_they_are(dtype: torch.dtype, name: str) -> None:
    """bf16 gradients sent as they are were "2.00x fewer than fp32 all-reduce"."""
    net = net_of(dtype)
    plan, report = Plan.of(Policy.of("dense"), Model.of(net), 2), report_of_dtype("dense", net)
    assert report.ratio == pytest.approx(1.0, rel=1e-3)  # messages end on whole words
    bits = 8 * dtype.itemsize
    for text in (str(plan), str(report)):
        assert f"1.00x fewer than {name} all-reduce" in text
    assert f"{name} all-reduce sends {bits}\n" in str(report)
    wide = net_of(torch.float32)
    ternary, of_wide = report_of_dtype("terngrad", net), report_of_dtype("terngrad", wide)
    layers = {layer.name: layer.bytes_per_step for layer in ternary.layers}
    assert layers["1.weight"] == {layer.name: layer.bytes_per_step for layer in of_wide.layers}["1.weight"]
    assert ternary.ratio == ternary.dense_bytes_per_step / ternary.bytes_per_step
    assert ternary.dense_bytes_per_step == of_wide.dense_bytes_per_step * bits / 32


def test_of_several_dtypes_the_sum_of_their_bytes_counts() -> None:
    net = nn.Sequential(nn.Linear(64, 64).to(torch.bfloat16), nn.Linear(64, 64))
    report = report_of_dtype("dense", net)
    assert report.ratio == 1.0
    assert report.dense_bytes_per_step == 4160 * (2 + 4)
    assert "1.00x fewer than plain all-reduce" in str(report)
    assert "plain all-reduce sends 24\n" in str(report)

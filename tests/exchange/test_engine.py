"""The engine on thread ranks: buckets, parts, bytes as planned, ranks that disagree, statistics."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from simulation import (
    Gradients,
    Simulation,
    assert_ranks_agree,
    assert_same,
    gaussian,
    same_bits,
    specs_of,
)
from thinwire.errors import PlanError
from thinwire.exchange.engine import Engine
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.lane import dry_context

SPECS = specs_of({"conv": (8, 3, 3, 3), "norm": 8, "fc": (37, 53), "bias": 37, "one": ()})
MIXED = {"fc": "terngrad", "conv": "terngrad:block=64", "norm": "bf16", "*": "dense"}
WORLDS = (1, 2, 3, 4, 5, 8)


@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_buckets_change_no_bits(world: int) -> None:
    """The same gradients in one bucket, in several, and in several in another order."""
    source = gaussian(SPECS)
    for codec in ("terngrad", "terngrad:scales=own", MIXED):
        simulation = Simulation(codec, SPECS, world)
        one = simulation.run(source, steps=2)
        assert_ranks_agree(one)
        for buckets in (
            (("one", "bias"), ("fc", "norm"), ("conv",)),
            (("bias", "fc", "one"), ("conv", "norm")),
            tuple((spec.name,) for spec in SPECS),
        ):
            several = simulation.but(buckets=buckets).run(source, steps=2)
            for a, b in zip(one[0], several[0], strict=True):
                assert_same(a, {name: b[name] for name in a})


def test_a_rebuilt_bucket_changes_no_bits() -> None:
    """DDP rebuilds its buckets after the first step; residuals are kept by name."""
    source = gaussian(SPECS)
    simulation = Simulation(MIXED, SPECS, 3, feedback="residual")
    expected = simulation.run(source, steps=3)[0]

    def work(group: ThreadGroup) -> list[Gradients]:
        engine = simulation.engine(group)
        cuts = (
            None,
            (("one", "bias"), ("fc", "norm"), ("conv",)),
            (("conv",), ("fc", "one"), ("bias", "norm")),
        )
        return [
            simulation.but(buckets=cut).step(engine, source(step, group.rank))
            for step, cut in enumerate(cuts)
        ]

    for means in run_ranks(3, work):
        for a, b in zip(expected, means, strict=True):
            assert_same(a, {name: b[name] for name in a})


def test_steps_and_seeds_draw_anew() -> None:
    specs = specs_of({"fc": 2003})
    constant = lambda step, rank: {"fc": torch.linspace(-1, 1, 2003)}  # noqa: E731
    first, second = Simulation("terngrad", specs, 2).run(constant, steps=2)[0]
    other = Simulation("terngrad", specs, 2, seed=1).run(constant)[0][0]
    assert not same_bits(first["fc"], second["fc"])
    assert not same_bits(first["fc"], other["fc"])


def test_loss_scales_may_change_between_steps() -> None:
    """Under a GradScaler gradients come scaled; the means are the same numbers in the same units."""
    specs = specs_of({"fc": 500})
    source, simulation = gaussian(specs), Simulation("terngrad", specs, 2, feedback="residual")

    def work(units: tuple[float, ...]) -> Callable[[ThreadGroup], list[Tensor]]:
        def body(group: ThreadGroup) -> list[Tensor]:
            engine = simulation.engine(group)
            return [
                simulation.step(engine, {"fc": unit * source(t, group.rank)["fc"]}, unit)["fc"] / unit
                for t, unit in enumerate(units)
            ]

        return body

    plain = run_ranks(2, work((1.0, 1.0, 1.0)))
    scaled = run_ranks(2, work((1024.0, 512.0, 65536.0)))
    for a, b in zip(plain[0], scaled[0], strict=True):
        assert same_bits(a, b)  # powers of two: not even a rounding differs


@pytest.mark.parametrize("world", WORLDS)
def test_planned_bytes_are_metered_bytes(world: int) -> None:
    buckets = (("one", "bias"), ("fc", "norm"), ("conv",))
    codecs: tuple[str | dict[str, str], ...] = ("terngrad", "dense", MIXED)
    for codec, feedback in itertools.product(codecs, (None, "residual")):
        simulation = Simulation(codec, SPECS, world, feedback=feedback, buckets=buckets)

        def work(group: ThreadGroup, simulation: Simulation = simulation) -> list[int]:
            engine, totals = simulation.engine(group), []
            for step in range(3):
                before = engine.group.total_bytes
                simulation.step(engine, gaussian(SPECS)(step, group.rank))
                totals.append(engine.group.total_bytes - before)
            return totals

        planned = simulation.plan.step_bytes(simulation.layouts)
        for totals in run_ranks(world, work):
            assert totals[1:] == [planned, planned]
            assert totals[0] == planned + len(buckets) * 32 * (world - 1)  # layouts are compared once


def test_lanes_of_a_bucket_share_their_messages() -> None:
    """Agreeing costs milliseconds: one maximum, one all-to-all and one all-gather for all lanes."""
    simulation = Simulation({"fc": "terngrad", "conv": "terngrad:block=64", "*": "dense"}, SPECS, 2)

    def work(group: ThreadGroup) -> dict[str, int]:
        engine = simulation.engine(group)
        simulation.step(engine, gaussian(SPECS)(0, group.rank))
        before = dict(engine.group.calls)
        simulation.step(engine, gaussian(SPECS)(1, group.rank))
        return {act: count - before.get(act, 0) for act, count in engine.group.calls.items()}

    assert run_ranks(2, work) == [{"all_gather": 1, "all_reduce_max": 1, "all_to_all": 1}] * 2


def outcomes(simulations: list[Simulation], source_specs: object = SPECS) -> list[str]:
    """What every rank is told when each runs its own simulation."""

    def work(group: ThreadGroup) -> str:
        simulation = simulations[group.rank]
        try:
            engine = simulation.engine(group)
            simulation.step(engine, gaussian(simulation.specs)(0, group.rank))
        except PlanError as error:
            return str(error)
        return "fine"

    return run_ranks(len(simulations), work, timeout_s=300)


@pytest.mark.parametrize(
    "other",
    [
        Simulation("terngrad:wire=2bit", SPECS, 3),
        Simulation("dense", SPECS, 3),
        Simulation("terngrad", SPECS, 3, feedback="residual"),
        Simulation("terngrad", SPECS, 3, route="allgather"),
        Simulation("terngrad", SPECS[:-1], 3),
        Simulation("terngrad", SPECS[::-1], 3),
    ],
)
def test_mismatching_plans_raise_on_all_ranks(other: Simulation) -> None:
    same = Simulation("terngrad", SPECS, 3)
    told = outcomes([same, other, same])
    assert all("ranks disagree on their plans" in text for text in told)
    assert all("rank 0 and rank 1 differ" in text for text in told)
    assert all("same codec on every rank" in text for text in told)


def test_mismatching_buckets_raise_on_all_ranks() -> None:
    same = Simulation("terngrad", SPECS, 3)
    other = same.but(buckets=(("fc", "norm"), ("conv", "bias", "one")))
    told = outcomes([same, same, other])
    assert all("ranks disagree on their buckets" in text for text in told)
    assert all("rank 0 and rank 2 differ" in text for text in told)


def test_equal_plans_are_fine() -> None:
    assert outcomes([Simulation("terngrad", SPECS, 3)] * 3) == ["fine"] * 3


def test_errors_by_layer_are_measured() -> None:
    """Relative error of this rank's payload, measured in the first step and then every so often."""
    specs = specs_of({"t": 4000, "h": 4000, "d": 4000})
    simulation = Simulation({"t": "terngrad", "h": "bf16", "d": "dense"}, specs, 1)
    source = gaussian(specs)
    engine = simulation.engine(ThreadGroup.make(1)[0])
    simulation.step(engine, source(0, 0))
    layers = engine.statistics.layers
    gradient = source(0, 0)["t"]
    fresh = simulation.run(source)[0][0]["t"]
    expected = ((fresh - gradient).norm() / gradient.norm()).item()
    assert layers["t"].relative_error == pytest.approx(expected, rel=1e-4)
    rounding = layers["h"].relative_error
    assert rounding is not None
    assert 0 < rounding < 2**-8
    assert layers["d"].relative_error is None
    simulation.step(engine, source(1, 0))
    assert layers["t"].relative_error == pytest.approx(expected, rel=1e-4), "not every step is measured"


def test_seconds_go_to_the_stages() -> None:
    engine = Simulation("terngrad", SPECS, 1).engine(ThreadGroup.make(1)[0])
    Simulation("terngrad", SPECS, 1).step(engine, gaussian(SPECS)(0, 0))
    assert set(engine.clock.seconds) == {"agree", "encode", "travel", "merge", "decode"}
    assert all(seconds > 0 for seconds in engine.clock.seconds.values())


def test_device(device: torch.device) -> None:
    """The same line on another device gives the bits of the CPU; not with clipping: sigma's order differs."""
    simulation = Simulation("terngrad:off", SPECS, 2)
    expected = simulation.run(gaussian(SPECS), steps=2)
    found = simulation.but(device=device).run(gaussian(SPECS), steps=2)
    for a, b in zip(expected[0], found[0], strict=True):
        assert_same(a, b)


def test_engines_are_independent() -> None:
    """Two engines in one process do not share memories, steps or buffers."""
    simulation = Simulation("terngrad", SPECS, 1, feedback="residual")
    engines = [simulation.engine(ThreadGroup.make(1)[0]) for _ in range(2)]
    expected = [simulation.step(engines[0], gaussian(SPECS)(t, 0)) for t in range(2)]
    found: list[Gradients] = []
    other: Engine = simulation.but(seed=7).engine(ThreadGroup.make(1)[0])
    for t in range(2):
        simulation.step(other, gaussian(SPECS)(5 + t, 0))
        found.append(simulation.step(engines[1], gaussian(SPECS)(t, 0)))
    for a, b in zip(expected, found, strict=True):
        assert_same(a, b)


@pytest.mark.parametrize("text", ["fourier >> dense", "dct >> dense", "fourier >> fp16"])
@pytest.mark.parametrize("world", [1, 3])
def test_numbers_that_are_the_payload_are_read_before_they_are_divided(text: str, world: int) -> None:
    """A payload in place of the numbers was divided by N before memory and statistics had read them."""
    specs = specs_of({"w": (60, 41)})
    simulation = Simulation(text, specs, world, feedback="residual")

    def work(group: ThreadGroup) -> tuple[float, float]:
        engine = simulation.engine(group)
        simulation.step(engine, gaussian(specs)(0, group.rank))
        kept = engine.feedbacks["residual"].state()["residual"]["w"]
        return engine.statistics.layers["w"].relative_error or 0.0, float(kept.norm())

    for error, kept in run_ranks(world, work):
        assert error < 1e-2
        assert kept < 1e-2 * 60 * 41


def test_changing_level_leaves_no_buffers_behind() -> None:
    specs = specs_of({"w": (200, 41), "v": (100, 30), "b": 7})
    codec = {"w": "fft:0.9,chunk=64", "v": "topk:0.05", "*": "dense"}
    steps = "/".join(f"{step}={0.3 + 0.02 * step:.2f}" for step in range(30))
    simulation = Simulation(codec, specs, 1, schedule=f"steps:{steps}")
    engine = simulation.engine(ThreadGroup.make(1)[0])
    sizes = []
    for step in range(30):
        simulation.step(engine, gaussian(specs)(step, 0))
        sizes.append(engine.buffer_bytes)
    assert sizes[-1] <= 2 * sizes[2]


@pytest.mark.parametrize("text", ["topk:0.05", "sign", "rangefloat:8", "fft:0.85", "dct >> topk:0.1 >> bf16"])
def test_large_tensors_of_gathering_codecs_travel_in_parts(text: str) -> None:
    """Cut inside a tensor, at units that are coded by themselves: parts change no bits."""
    specs = specs_of({"w": (3 << 20) + 12345, "v": 5000})
    simulation = Simulation(text, specs, 2)
    lanes = simulation.plan.lanes(simulation.layouts[0], dry_context(2))
    assert len(lanes[0].parts) > 1

    def run(part_numel: int) -> list[Gradients]:
        def work(group: ThreadGroup) -> Gradients:
            engine = simulation.engine(group)
            engine.part_numel = part_numel
            simulation.step(engine, gaussian(specs)(0, group.rank))
            return simulation.step(engine, gaussian(specs)(1, group.rank))

        return run_ranks(2, work)

    whole, parts = run(1 << 30), run(1 << 20)
    assert_same(parts[0], parts[1])
    assert_same(whole[0], parts[0])

"""The safeguard of an auto run, without DDP: what is sent again, what is believed, and who is at fault."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import thinwire as tw
from simulation import Gradients, Simulation
from thinwire.codecs.codec import CodecLike
from thinwire.codecs.coder import Coder, Context, Merge, Packer
from thinwire.codecs.floats import FloatPacker, runs_of
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.nodes import Alone
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.hooks.selector import RawGradients, Safeguard
from thinwire.tensors import Layout, Spec

WORLD, BAD_STEP = 3, 2
SPECS = (Spec("a", (20, 30)), Spec("b", (40,)), Spec("c", (7, 30)))
BUCKETS = (("c", "b"), ("a",))
HUGE = 1e6


@dataclass(frozen=True)
class Unscaled(Coder):
    """A codec with a flaw, as thinwire's own fp16 once was: above 65,504 it gives Inf."""

    merge = Merge.SUM
    near_lossless = True

    def bind(self, layout: Layout, context: Context) -> Packer:
        return FloatPacker(torch.float16, runs_of(layout), context)


@dataclass(frozen=True)
class Told:
    """Of one rank: the means of every step, and in which steps the codec was at fault."""

    means: list[Gradients]
    flawed: list[int]


def simulation(codec: CodecLike) -> Simulation:
    return Simulation(codec, SPECS, WORLD, buckets=BUCKETS)


def gradients(step: int, rank: int, value: float = HUGE) -> Gradients:
    """Normal numbers; in the bad step one of them, of one bucket and on one rank, is the value."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    made = {spec.name: torch.randn(spec.shape, generator=generator) for spec in SPECS}
    if step == BAD_STEP and rank == 1:
        made["a"][3, 4] = value
    return made


def raw_of(buffer: Tensor, in_parameters: bool) -> RawGradients:
    """As DDP has them: in the parameters too, or nowhere but in the bucket."""
    parameter = torch.nn.Parameter(torch.zeros_like(buffer))
    parameter.grad = buffer.clone() if in_parameters else buffer
    raw = RawGradients.of(buffer, [buffer], [parameter])
    assert (raw.sources is not None) == in_parameters
    return raw


def step_of(guard: Safeguard, engine: Engine, own: Gradients, in_parameters: bool = True) -> Gradients:
    means: Gradients = {}
    for layout in simulation("dense").layouts:
        buffer = torch.cat([own[name].flatten() for name in layout.names])
        guard.exchange(Bucket(buffer, layout), raw_of(buffer, in_parameters))
        for spec, piece in zip(layout.specs, layout.slices, strict=True):
            means[spec.name] = buffer[piece].view(spec.shape)
    engine.end_step()
    return means


def run(codec: CodecLike, steps: int, value: float = HUGE, in_parameters: bool = True) -> list[Told]:
    """Guarded steps; a codec that is at fault gives way to dense, as the autotuner does it."""

    def work(group: ThreadGroup) -> Told:
        engine = simulation(codec).engine(group)
        guard, told = Safeguard(engine, Alone(), group), Told([], [])
        for step in range(steps):
            told.means.append(step_of(guard, engine, gradients(step, group.rank, value), in_parameters))
            if guard.asked():
                told.flawed.append(step)
                engine.switch(simulation("dense").plan)
        return told

    return run_ranks(WORLD, work)


def mean_of(step: int, name: str, value: float = HUGE) -> Tensor:
    return torch.stack([gradients(step, rank, value)[name] for rank in range(WORLD)]).mean(0)


@pytest.mark.parametrize("in_parameters", [True, False])
def test_a_bucket_whose_mean_is_not_finite_is_sent_again_as_it_is(in_parameters: bool) -> None:
    for told in run(Unscaled(), BAD_STEP + 2, in_parameters=in_parameters):
        assert told.flawed == [BAD_STEP]
        for step, means in enumerate(told.means):
            for name, mean in means.items():
                torch.testing.assert_close(mean, mean_of(step, name), rtol=1e-2, atol=1e-2)
        exact = mean_of(BAD_STEP, "a")
        torch.testing.assert_close(told.means[BAD_STEP]["a"], exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_gradients_that_are_not_finite_are_nobodys_fault(value: float) -> None:
    for codec in (Unscaled(), "topk:0.2", "qsgd:4"):
        for told in run(codec, BAD_STEP + 2, value):
            assert told.flawed == []
            finite = [all(bool(m.isfinite().all()) for m in means.values()) for means in told.means]
            assert finite == [True, True, False, True]


def test_what_was_held_back_is_sent_once_though_a_step_was_sent_again() -> None:
    """The means of all steps add up to the gradients: of the bucket that was sent again nothing is believed,
    of the other one everything."""
    steps = BAD_STEP + 3
    for told in run(tw.TopK(0.3) >> Unscaled(), steps):
        assert told.flawed == [BAD_STEP]
        for spec in SPECS:
            found = torch.stack([means[spec.name] for means in told.means]).sum(0)
            wanted = torch.stack([mean_of(step, spec.name) for step in range(steps)]).sum(0)
            torch.testing.assert_close(found, wanted, rtol=1e-3, atol=2e-2)


def test_what_is_left_of_a_codec_before_is_dropped_before_the_next_one_is_blamed() -> None:
    def work(group: ThreadGroup) -> tuple[bool, bool, bool]:
        engine = simulation("topk:0.3").engine(group)
        guard = Safeguard(engine, Alone(), group)
        engine.pending_residual.put("a", torch.full((600,), 3e38))
        means = step_of(guard, engine, {spec.name: torch.full(spec.shape, 3e38) for spec in SPECS})
        return (
            guard.asked(),
            bool(engine.pending_residual),
            all(bool(m.isfinite().all()) for m in means.values()),
        )

    assert run_ranks(WORLD, work) == [(False, False, True)] * WORLD

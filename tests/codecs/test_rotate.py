"""Rotation, steps in standard deviations, rounding to the nearest: what they promise and what they refuse."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from packing import bound, one_tensor, pack
from simulation import Simulation, gaussian, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.rotate import Rotate
from thinwire.errors import CodecError, PeerError, PlanError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import Kernels, backends
from thinwire.tensors import Key

N = 1 << 16
ERRORS = {"rotated": 0.235, "rotated:7": 0.0492, "rotated:15": 0.01306}  # made unbiased, of a Gaussian
BIASED = {"rotated": 0.190, "rotated:7": 0.0469, "rotated:15": 0.01289}


def spiky(seed: int = 0) -> Tensor:
    """A gradient unlike a Gaussian: few large elements."""
    x = torch.randn(N, generator=torch.Generator().manual_seed(seed))
    return x * x.abs()


def error(text: str, x: Tensor, kernels: Kernels | None = None) -> float:
    found = pack(text, one_tensor(len(x)), [x], kernels=kernels).mean(x)
    return float(((found - x).norm() / x.norm()) ** 2)


@pytest.mark.parametrize("text", ERRORS)
def test_it_errs_as_on_a_gaussian_whatever_the_gradient(text: str) -> None:
    assert error(text, spiky()) == pytest.approx(ERRORS[text], rel=0.05)
    assert error(f"{text}{',' if ':' in text else ':'}unbiased=off", spiky()) == pytest.approx(
        BIASED[text], rel=0.05
    )


def test_without_rotation_spikes_are_cut_off() -> None:
    step = "ternary:step=1.224,rounding=nearest,block=512"
    assert error(step, spiky()) > 1.3 * error(f"rotate:512 >> {step}", spiky())


def test_the_short_name_is_the_chain() -> None:
    """One fused stage: the bytes of the chain that it is short for."""
    x = spiky()
    short = pack("rotated", one_tensor(N), [x])
    long = pack("rotate:512 >> ternary:step=1.224,rounding=nearest,block=512", one_tensor(N), [x])
    assert same_bits(short.payloads[0], long.payloads[0])
    assert len(tw.parse("rotated").stages) == 1
    assert (
        tw.parse("rotated:7").canonical == tw.parse("rotate >> qsgd:3,step=0.6508,rounding=nearest").canonical
    )


def test_the_mean_of_many_rotations_is_the_gradient() -> None:
    """Biased for one rotation, nearly unbiased over all of them: the rotation is new in every step."""
    x = spiky()[:4096]
    means = [pack("rotated", one_tensor(4096), [x], step=step).mean(x).double() for step in range(64)]
    once, often = means[0], torch.stack(means).mean(0)
    assert float((often - x).norm() / (once - x).norm()) < 0.25
    assert float((often @ x.double()) / (x.double() @ x.double())) == pytest.approx(1, abs=0.02)


def test_all_ranks_turn_alike_and_integers_add_up() -> None:
    """One payload of a mean of equal gradients decodes to what each of them does."""
    x = spiky()
    assert tw.parse("rotated").merge is Merge.INT
    assert same_bits(
        pack("rotated", one_tensor(N), [x] * 4).mean(x), pack("rotated", one_tensor(N), [x]).mean(x)
    )


def test_sigma_is_the_mean_of_all_ranks() -> None:
    """A rank that is twice as long moves the step of both."""
    x = torch.ones(512)
    codecs = [
        bound("ternary:step=1.0,rounding=nearest,block=512", one_tensor(512), 2, rank) for rank in (0, 1)
    ]
    offers = [codec.stages[0].summands(x * scale) for codec, scale in zip(codecs, (1.0, 2.0), strict=True)]
    y = codecs[0].stages[0].forward(x, offers[0] + offers[1])
    torch.testing.assert_close(y, torch.full((512,), 1 / 1.5))


def test_the_gain_is_that_of_a_gaussian() -> None:
    y = torch.randn(1 << 20, generator=torch.Generator().manual_seed(3))
    for text in (
        "ternary:step=1.224,rounding=nearest",
        "qsgd:3,step=0.4",
        "qsgd:4,step=0.3,rounding=nearest",
    ):
        found = pack(f"{text},block=layer", one_tensor(len(y)), [y]).mean(y)
        assert float(found @ y / (y @ y)) == pytest.approx(1, abs=0.005), text


@pytest.mark.parametrize("block", [1000, 0, 16, 8192, -512])
def test_blocks_that_are_no_power_of_two_are_refused(block: int) -> None:
    with pytest.raises(CodecError, match=f"rotate: block={block} must be a power of two from 32 to 4096"):
        Rotate(block)
    with pytest.raises(CodecError, match="must be a power of two"):
        tw.parse(f"rotated:3,block={block}")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("topk:0.1 >> rotate:512", "nothing but a coder can follow a stage that selects"),
        ("topk:0.1 >> rotated", "nothing but a coder can follow a stage that selects"),
        ("topk:0.1 >> ternary:step=1.2", "nothing but a coder can follow a stage that selects"),
        ("qsgd:4 >> rotate:512", "must be the last link"),
        ("rotate:512", "ends in a stage"),
        ("rotated:4", "levels=4 must be 3, 7 or 15"),
        ("terngrad:step=0", "step=0 must be positive"),
        ("qsgd:4,step=0.3,scales=own", "use scales=shared"),
        ("terngrad:rounding=up", 'rounding="up" does not fit: "random" or "nearest"'),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(text: str, says: str) -> None:
    with pytest.raises(CodecError, match=says):
        tw.parse(text)


def test_ranks_with_different_seeds_are_refused() -> None:
    """They would turn back what the others never turned."""
    simulation = Simulation("rotated", specs_of({"w": 512}), 2)

    def work(group: ThreadGroup) -> None:
        simulation.but(seed=group.rank).engine(group)

    with pytest.raises((PlanError, PeerError), match="seed"):
        run_ranks(2, work)


def test_keys_of_all_ranks_are_one_and_of_every_step_another() -> None:
    assert Key(1, 2, 0).shared == Key(1, 2, 5).shared
    assert Key(1, 2, 0).shared.words("w") != Key(1, 3, 0).shared.words("w")
    assert Key(1, 2, 0).shared.words("w") != Key(1, 2, 0).words("w")


def test_parts_do_not_matter() -> None:
    """A lane that is turned part by part gives the bits of one that is turned at once."""
    specs = specs_of({"a": (300, 130), "b": 700, "c": (64, 600)})
    simulation, source = Simulation("rotated", specs, 2), gaussian(specs)

    def means(part_numel: int | None) -> dict[str, Tensor]:
        def work(group: ThreadGroup) -> dict[str, Tensor]:
            engine = simulation.engine(group)
            engine.part_numel = part_numel
            return simulation.step(engine, source(0, group.rank))

        return run_ranks(2, work)[0]

    whole, parts = means(None), means(20000)
    assert all(same_bits(whole[name], parts[name]) for name in whole)


class Watched:
    """Kernels that note which of them were called."""

    def __init__(self, kernels: object) -> None:
        self.kernels, self.called = kernels, set[str]()

    def __getattr__(self, name: str) -> Any:
        self.called.add(name)
        return getattr(self.kernels, name)


@pytest.mark.parametrize("text", ["rotated", "rotated:7"])
def test_steps_in_one_call_are_those_in_two(text: str) -> None:
    """A step that nobody measures turns and rounds at once, there and back; the first one is measured."""
    best = next(iter(backends().values()))
    if best.turned is None:
        pytest.skip("there are no native kernels here")
    watched, specs = Watched(best.turned), specs_of({"a": (300, 130), "b": 700, "c": (64, 600)})

    def steps(turned: Any) -> list[dict[str, Tensor]]:
        simulation = Simulation(text, specs, 3, kernels=replace(best, turned=turned))
        return simulation.run(gaussian(specs), steps=3)[0]

    for found, expected in zip(steps(watched), steps(None), strict=True):
        assert all(same_bits(found[name], expected[name]) for name in expected)
    assert {name.partition("_")[0] for name in watched.called} == {"encode", "decode"}


def test_steps_are_off_unless_asked_for() -> None:
    assert math.isinf(tw.TernGrad().step)
    assert tw.parse("terngrad").canonical == "TernGrad()"
    assert tw.parse("rotated").feedback == "none"
    assert not tw.parse("rotated:7").adjustable

"""QSGD: its options, its bytes, and property T7: unbiased, bounded variance, TernGrad for one level."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from packing import bound, one_tensor, pack, payload_bytes
from simulation import Simulation, gaussian, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.qsgd import QSGD
from thinwire.errors import CodecError, PlanError
from thinwire.groups.thread import ThreadGroup
from thinwire.kernels import Kernels
from thinwire.kernels.reference.bits import unpack_fields
from thinwire.kernels.sizes import digits_per_word
from thinwire.tensors import Layout, Spec

BITS = tuple(range(2, 9))


def normal(numel: int, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def draws(text: str, x: Tensor, count: int) -> Tensor:
    """`count` independent draws of Q(x), one per row."""
    layout = one_tensor(x.numel())
    return torch.stack([pack(text, layout, [x], step).own(0, x) for step in range(count)]).double()


@pytest.mark.parametrize("text", ["qsgd:2", "qsgd:3,norm=l2", "qsgd:4", "qsgd:8,scales=own,block=64"])
def test_t7_unbiased(text: str) -> None:
    """The mean of many draws is x, each element within 5 standard errors."""
    x, num_draws = normal(512), 1500
    found = draws(text, x, num_draws)
    step = found.abs()[found != 0].min()  # at least the step of the finest block
    deviation = found.std(0) + step * math.sqrt(
        5 / num_draws
    )  # an element that was never rounded up shows none
    assert ((found.mean(0) - x.double()).abs() <= 5 * deviation / math.sqrt(num_draws) + 1e-6).all()


@pytest.mark.parametrize("bits", [2, 3, 4, 6])
def test_t7_variance_with_the_l2_norm(bits: int) -> None:
    """E|Q - v|^2 <= min(n / s^2, sqrt(n) / s) |v|^2; for the vector (1, ..., 1) it is nearly attained."""
    n, s = 512, (1 << (bits - 1)) - 1
    for x in (normal(n), torch.ones(n), torch.eye(1, n).flatten()):
        errors = (draws(f"qsgd:{bits},norm=l2", x, 300) - x).square().sum(1)
        assert errors.mean() <= min(n / s**2, math.sqrt(n) / s) * x.double().square().sum() * 1.05 + 1e-6


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_t7_variance_is_exactly_that_of_stochastic_rounding(bits: int) -> None:
    """E|Q - v|^2 = sum of f (1 - f) step^2 under the max norm, far below that of the l2 norm."""
    x, s = normal(512), (1 << (bits - 1)) - 1
    step = x.abs().max().double() / s
    f = (x.double().abs() / step) % 1
    expected = (f * (1 - f) * step**2).sum()
    errors = (draws(f"qsgd:{bits}", x, 400) - x).square().sum(1)
    assert errors.mean().item() == pytest.approx(expected.item(), abs=5 * errors.std().item() / 20)
    assert expected < (draws(f"qsgd:{bits},norm=l2", x, 50) - x).square().sum(1).mean()


@pytest.mark.parametrize("text", ["block=layer", "block=64", "block=64,scales=own"])
def test_t7_one_level_is_terngrad_without_clipping(kernels: Kernels, text: str) -> None:
    """s = 1 and the max norm: the same uniforms give the same trits, exactly, also next to the norm."""
    x = normal(5003)
    largest = x.abs().max()
    for ulps in range(1, 9):
        x[13 * ulps] = (largest.view(torch.int32) - ulps).view(torch.float32)
    x[:3] = torch.tensor([0.0, -0.0, 1e-30])
    xs = [x, normal(5003, seed=1)]
    ours = pack(f"qsgd:2,{text}", one_tensor(5003), xs, kernels=kernels)
    theirs = pack(f"terngrad:clip=off,{text}", one_tensor(5003), xs, kernels=kernels)
    assert same_bits(ours.shared[0], theirs.shared[0])
    for rank in (0, 1):
        assert same_bits(ours.own(rank, x), theirs.own(rank, x))
    assert same_bits(ours.mean(x), theirs.mean(x))


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("scales", ["shared", "own"])
def test_levels_survive_for_every_length(kernels: Kernels, bits: int, scales: str) -> None:
    """A tensor of whole levels, the largest among them, is sent as it is: packing loses nothing."""
    s = (1 << (bits - 1)) - 1
    for numel in (*range(1, 37, 5), 127, 128, 129, 1023, 1025, 2500):
        x = torch.randint(-s, s + 1, (numel,), generator=torch.Generator().manual_seed(numel)).float()
        x[0] = -s
        packed = pack(f"qsgd:{bits},block=layer,scales={scales}", one_tensor(numel), [x], kernels=kernels)
        assert same_bits(packed.own(0, x), x + 0.0)
        assert same_bits(packed.mean(x), x + 0.0)


@pytest.mark.parametrize("world", [*range(1, 10), 100])
def test_sums_are_exact(world: int) -> None:
    """Whole levels under a shared scale: the mean is n / (s N) times an integer, whatever N."""
    for bits in (2, 4, 8):
        s = (1 << (bits - 1)) - 1
        xs = [
            torch.randint(-s, s + 1, (700,), generator=torch.Generator().manual_seed(rank)).float()
            for rank in range(world)
        ]
        xs[0][0] = s
        mean = pack(f"qsgd:{bits},block=layer", one_tensor(700), xs).mean(xs[0])
        total = torch.stack(xs).sum(0)
        assert same_bits(mean, total * (torch.tensor(float(s)) / (s * world)))


@pytest.mark.parametrize("norm", ["max", "l2"])
@pytest.mark.parametrize("scales", ["shared", "own"])
def test_zero_blocks_stay_zeros(kernels: Kernels, norm: str, scales: str) -> None:
    x = normal(1600)
    x[512:1024] = 0.0
    packed = pack(f"qsgd:4,norm={norm},scales={scales}", one_tensor(1600), [x, x], kernels=kernels)
    for found in (packed.mean(x), packed.own(0, x)):
        assert same_bits(found[512:1024], torch.zeros(512))
        assert torch.isfinite(found).all()
        assert found[:512].any()


@pytest.mark.parametrize("norm", ["max", "l2"])
def test_tiny_and_huge_blocks_are_finite(kernels: Kernels, norm: str) -> None:
    """Denormal norms, and an L2 norm that no float holds."""
    for factor in (1e-45, 1e-42, 1e-38, 1e37):
        x = (normal(512) * factor).clamp(-3e38, 3e38)
        packed = pack(f"qsgd:4,norm={norm}", one_tensor(512), [x], kernels=kernels)
        found = packed.own(0, x)
        assert torch.isfinite(found).all()
        assert found.abs().max() <= packed.shared[0].view(torch.float32).max() * (1 + 1e-6)
    x = torch.full((512,), torch.finfo(torch.float32).max)
    assert torch.isfinite(pack(f"qsgd:4,norm={norm}", one_tensor(512), [x], kernels=kernels).own(0, x)).all()


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["qsgd:4", "qsgd:3,norm=l2,scales=own", "qsgd:8,block=layer"])
def test_a_block_that_is_not_finite_is_so_everywhere(kernels: Kernels, text: str, number: float) -> None:
    xs = [normal(700, seed=rank) for rank in range(3)]
    xs[1][600] = number
    packed = pack(text, one_tensor(700), xs, kernels=kernels)
    mean, own = packed.mean(xs[0]), packed.own(1, xs[0])
    assert not torch.isfinite(mean[512:]).any()
    assert not torch.isfinite(own[512:]).any()
    assert torch.isfinite(mean[:512]).all() == ("layer" not in text)


def test_the_norm_is_that_of_the_block() -> None:
    x = normal(1100)
    for text, order in (("qsgd:4,block=512", math.inf), ("qsgd:4,block=512,norm=l2", 2)):
        shared = pack(text, one_tensor(1100), [x, x / 2]).shared[0].view(torch.float32)
        expected = torch.stack([part.double().norm(order) for part in x.split(512)])
        torch.testing.assert_close(shared.double(), expected, rtol=1e-7, atol=0)


@pytest.mark.parametrize("bits", BITS)
def test_bits_on_the_wire(bits: int) -> None:
    """bits + 32 / block an element (own), exactly `bits` and one agreed word a block (shared)."""
    n = 2048 * 100
    shared, own = (bound(f"qsgd:{bits},scales={s}", one_tensor(n), 4).packer for s in ("shared", "own"))
    assert 8 * payload_bytes(shared) == bits * n
    assert shared.max_words == n // 512
    assert 8 * payload_bytes(own) == bits * n + 32 * n // 512
    assert own.max_words == 0
    digits = digits_per_word(2 * ((1 << (bits - 1)) - 1) * 4 + 1)
    assert 8 * shared.merged_bytes(shared.num_granules) == pytest.approx(32 / digits * n, rel=1e-3)


def test_codes_use_every_level() -> None:
    x = normal(51200)
    packed = pack("qsgd:5", one_tensor(51200), [x])
    assert set(unpack_fields(packed.payloads[0], 5).tolist()) == set(range(31))


def test_the_largest_worlds() -> None:
    for bits, most in ((2, 32767), (4, 4681), (8, 258)):
        bound(f"qsgd:{bits}", one_tensor(10), most)
        with pytest.raises(
            PlanError, match=f"qsgd:{bits} adds up at most {most} workers, not {most + 1}.*scales=own"
        ):
            bound(f"qsgd:{bits}", one_tensor(10), most + 1)
        bound(f"qsgd:{bits},scales=own", one_tensor(10), most + 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bits": 1}, "bits=1 must be 2 to 8; for one bit use sign"),
        ({"bits": 9}, "bits=9 must be 2 to 8"),
        ({"block": 33}, "block=33 must be a multiple of 32, or layer"),
        ({"block": -32}, "block=-32 must be a multiple of 32"),
    ],
)
def test_bad_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence):
        QSGD(**options)


def test_how_it_merges() -> None:
    assert QSGD().merge is Merge.INT
    assert QSGD(scales="own").merge is Merge.GATHER
    assert QSGD().feedback == "none"


def test_behind_a_stage_with_any_layout(kernels: Kernels) -> None:
    """Numbers of several tensors end to end, none of them a multiple of anything."""
    layout = Layout.packed([Spec("a", (17, 31)), Spec("b", (601,)), Spec("c", ())])
    xs = [normal(layout.numel, seed=rank) for rank in range(3)]
    packed = pack("clip:9 >> qsgd:8,block=32", layout, xs, kernels=kernels)
    exact = torch.stack(xs).mean(0)
    assert (packed.mean(xs[0]) - exact).abs().max() <= 4 / 127
    assert tw.parse("clip:9 >> qsgd:8,block=32").merge is Merge.INT


@pytest.mark.parametrize("stage", ["gradiveq:4,slice=32,sample=2,compress=3,layers=all", "powersgd:2"])
@pytest.mark.parametrize("world", [1, 3])
def test_behind_a_learned_stage(stage: str, world: int) -> None:
    """A chain to 8 bits follows the chain that sends floats, in every phase, by the sharded route."""
    specs = specs_of({"w": (40, 37), "v": (64, 64)})
    runs = [Simulation(f"{stage} >> {coder}", specs, world) for coder in ("dense", "qsgd:8,block=32")]
    assert {entry.route for entry in runs[1].plan.entries if entry.codec.stages} == {"sharded"}
    floats, levels = (run.run(gaussian(specs), steps=4)[0] for run in runs)
    for name, mean in floats[0].items():  # later bases differ: they are learned from the means
        assert (mean - levels[0][name]).norm() <= 0.05 * mean.norm()
    for means in levels:
        assert all(torch.isfinite(mean).all() for mean in means.values())


def test_c1_converges_linearly_on_a_quadratic() -> None:
    """Strongly convex, exact gradients: eta <= 1 / (L (1 + omega)), omega <= min(n / s^2, sqrt(n) / s)."""
    n, steps, s = 16, 120, 7
    curvature, target = torch.linspace(0.2, 1.0, n), torch.linspace(-3, 3, n)
    simulation = Simulation("qsgd:4", specs_of({"x": n}), 1)
    engine = simulation.engine(ThreadGroup.make(1)[0])
    eta = 1 / (1 + min(n / s**2, math.sqrt(n) / s))
    x, distances = torch.zeros(n), []
    for _ in range(steps):
        distances.append((x - target).norm().item())
        x = x - eta * simulation.step(engine, {"x": curvature * (x - target)})["x"]
    assert distances[-1] / distances[0] < (1 - eta * curvature.min().item()) ** (steps / 2)

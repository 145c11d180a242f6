"""Sign: its options, its bytes, its values, and property E1: scaled sign is a contraction."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from packing import bound, one_tensor, pack, payload_bytes
from simulation import Simulation, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.sign import Sign
from thinwire.errors import CodecError
from thinwire.groups.thread import ThreadGroup
from thinwire.kernels import Kernels


def normal(numel: int, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


def sent(text: str, x: Tensor, kernels: Kernels | None = None) -> Tensor:
    return pack(text, one_tensor(x.numel()), [x], kernels=kernels).own(0, x)


@pytest.mark.parametrize("block", [0, 96])
def test_values_are_the_means_of_both_signs(kernels: Kernels, block: int) -> None:
    x = normal(1009) + 0.3
    x[5], x[6] = 0.0, -0.0  # both count as not negative
    found = sent(f"sign:block={block or 'layer'}", x, kernels)
    for part, got in zip(x.split(block or 1009), found.split(block or 1009), strict=True):
        for mask in (part >= 0, part < 0):
            torch.testing.assert_close(got[mask], part[mask].double().mean().float().expand_as(got[mask]))


@pytest.mark.parametrize("block", [0, 64])
def test_e1_scaled_sign_is_a_contraction(kernels: Kernels, block: int) -> None:
    """|x - Q(x)|^2 = (1 - |x|_1^2 / (n |x|^2)) |x|^2, block by block."""
    for x in (normal(1009), normal(1009).square(), torch.ones(1009), torch.eye(1, 1009).flatten()):
        found = sent(f"sign:values=scaled,block={block or 'layer'}", x, kernels)
        for part, got in zip(
            x.double().split(block or 1009), found.double().split(block or 1009), strict=True
        ):
            energy, length = part.square().sum().item(), part.abs().sum().item()
            expected = energy - length**2 / part.numel()
            assert (part - got).square().sum().item() == pytest.approx(expected, rel=1e-5, abs=1e-5 * energy)


def test_two_means_err_less_than_one_scale() -> None:
    """The means are the best two values there are."""
    x = normal(4096) + 0.5
    errors = [(sent(text, x) - x).norm() for text in ("sign", "sign:values=scaled")]
    assert errors[0] < errors[1] < x.norm()


@pytest.mark.parametrize("text", ["sign", "sign:values=scaled", "sign:block=32"])
def test_the_mean_is_that_of_what_was_sent(kernels: Kernels, text: str) -> None:
    xs = [normal(700, seed=rank) for rank in range(5)]
    packed = pack(text, one_tensor(700), xs, kernels=kernels)
    own = torch.stack([packed.own(rank, xs[0]) for rank in range(5)]).double().mean(0)
    torch.testing.assert_close(packed.mean(xs[0]).double(), own, rtol=1e-6, atol=1e-6)


def test_signs_survive_for_every_length(kernels: Kernels) -> None:
    for numel in (*range(1, 35), 1023, 1024, 1025, 2500):
        x = torch.where(normal(numel, seed=numel) >= 0, 1.0, -1.0)
        for text in ("sign", "sign:values=scaled"):
            assert same_bits(sent(text, x, kernels), x)


@pytest.mark.parametrize("text", ["sign", "sign:values=scaled"])
def test_zeros_and_one_sign(kernels: Kernels, text: str) -> None:
    zeros = torch.zeros(321)
    assert same_bits(sent(text, zeros, kernels), zeros)
    for x in (torch.full((321,), 0.5), torch.full((321,), -0.5)):
        assert same_bits(sent(text, x, kernels), x)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("text", ["sign", "sign:values=scaled", "sign:block=64"])
def test_what_is_not_finite_is_not_finite_at_its_place(kernels: Kernels, text: str, number: float) -> None:
    xs = [normal(700, seed=rank) for rank in range(3)]
    xs[1][600] = number
    packed = pack(text, one_tensor(700), xs, kernels=kernels)
    for found in (packed.mean(xs[0]), packed.own(1, xs[0])):
        assert not torch.isfinite(found[600])
        assert torch.isfinite(found[:512]).all() or "block" not in text
    assert torch.isfinite(packed.own(0, xs[0])).all()


def test_bits_on_the_wire() -> None:
    """One bit an element and two floats (mean) or one (scaled) a block, in whole multiples of 8 bytes."""
    n = 1024 * 50
    for text, floats in (("sign", 2), ("sign:values=scaled", 2), ("sign:block=512", 200)):
        assert 8 * payload_bytes(bound(text, one_tensor(n), 4).packer) == n + 32 * floats


def test_bad_options() -> None:
    for block in (33, -32):
        with pytest.raises(CodecError, match=f"sign: block={block} must be a multiple of 32, or layer"):
            Sign(block=block)


def test_how_it_merges_and_remembers() -> None:
    assert (Sign().merge, Sign().feedback) == (Merge.GATHER, "residual")


def test_with_error_feedback_it_finds_the_minimum_of_a_quadratic() -> None:
    """Without it the smaller curvatures are never reached: every element moves by the same amount."""
    n, steps, eta = 64, 400, 0.2
    curvature, target = torch.linspace(0.2, 1.0, n), torch.linspace(-3, 3, n)
    distances = {}
    for feedback in ("residual", "none"):
        simulation = Simulation("sign:values=scaled", specs_of({"x": n}), 1, feedback=feedback)
        engine, x = simulation.engine(ThreadGroup.make(1)[0]), torch.zeros(n)
        for _ in range(steps):
            x = x - eta * simulation.step(engine, {"x": curvature * (x - target)})["x"]
        distances[feedback] = (x - target).norm().item() / target.norm().item()
    assert distances["residual"] < 1e-3
    assert distances["residual"] < distances["none"]

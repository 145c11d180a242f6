"""The clip stage: where it cuts, and that it decodes as identity."""

from __future__ import annotations

import math

import pytest
import torch

import thinwire as tw
from packing import bound, one_tensor, pack, transform
from simulation import same_bits
from thinwire.codecs.clip import Clip
from thinwire.codecs.coder import Merge
from thinwire.errors import CodecError
from thinwire.kernels import Kernels
from thinwire.tensors import Layout, Spec

LAYOUT = Layout((Spec("a", (500,)), Spec("e", (0,)), Spec("b", (333,))), (2, 502, 510))


def test_it_cuts_every_tensor_at_c_standard_deviations(kernels: Kernels) -> None:
    x = torch.randn(850, generator=torch.Generator().manual_seed(0))
    x[510:] = 100 * x[510:] + 30
    codec = bound("clip:1.5 >> dense", LAYOUT, kernels=kernels)
    before = x.clone()
    (y,) = transform([codec], [x])
    assert same_bits(x, before), "a stage must not change its input"
    for piece, found in ((x[2:502], y[:500]), (x[510:843], y[500:])):
        limit = 1.5 * piece.double().std(correction=0).item()
        torch.testing.assert_close(found, piece.clamp(-limit, limit), rtol=1e-6, atol=0)
        assert found.abs().max() < piece.abs().max()


def test_it_decodes_as_identity() -> None:
    y = torch.arange(833.0)
    x = torch.full((850,), -1.0)
    bound("clip >> dense", LAYOUT).finish(y, x)
    assert torch.equal(x[2:502], y[:500])
    assert torch.equal(x[510:843], y[500:])
    assert (x[[0, 1, 502, 509, 843, 849]] == -1).all()


def test_chains_of_stages_decode_backwards() -> None:
    codec = bound("clip:3 >> clip:2 >> dense", LAYOUT)
    x = torch.randn(850)
    (y,) = transform([codec], [x])
    assert y.numel() == 833
    decoded = torch.zeros(850)
    codec.finish(y, decoded)
    assert same_bits(decoded[2:502], y[:500])
    assert same_bits(decoded[510:843], y[500:])


def test_clip_then_ternary_is_terngrad(kernels: Kernels) -> None:
    """The coder's own clipping is the stage before it: the same bytes."""
    layout = one_tensor(1009)
    xs = [torch.randn(1009) for _ in range(3)]
    chain = pack("clip:2.5 >> ternary", layout, xs, kernels=kernels)
    whole = pack("terngrad:clip=2.5", layout, xs, kernels=kernels)
    for a, b in zip(chain.payloads, whole.payloads, strict=True):
        assert same_bits(a, b)
    assert same_bits(chain.mean(xs[0]), whole.mean(xs[0]))


def test_nothing_finite_is_lost_beside_a_nan(kernels: Kernels) -> None:
    for bad in (math.nan, math.inf, -math.inf):
        x = torch.randn(850)
        x[7] = bad
        (y,) = transform([bound("clip >> dense", LAYOUT, kernels=kernels)], [x])
        assert same_bits(y[:500], x[2:502])


def test_it_adds_on_the_wire() -> None:
    for text, merge in (
        ("clip >> dense", Merge.SUM),
        ("clip >> bf16", Merge.SUM),
        ("clip >> ternary", Merge.INT),
    ):
        assert tw.parse(text).merge is merge


@pytest.mark.parametrize("c", [0.0, -2.5, math.nan])
def test_bad_bounds(c: float) -> None:
    with pytest.raises(CodecError, match=r"clip: c=.* must be positive; leave the stage out"):
        Clip(c)

"""SparseLoCo's codec: 64 of 4,096 elements in two bits; and error feedback that decays."""

from __future__ import annotations

import pytest
import torch

import thinwire as tw
from thinwire.codecs.coder import Context
from thinwire.codecs.sparseloco import BinsPacker
from thinwire.errors import CodecError, PlanError
from thinwire.feedback.base import Transmission
from thinwire.feedback.table import make_feedback
from thinwire.kernels import pick
from thinwire.tensors import Key, Layout, Piece, Spec

CPU = torch.device("cpu")
CONTEXT = Context(1, 0, CPU, pick(CPU))
NO_WORDS = torch.empty(0, dtype=torch.int32)


def decoded(codec: str, x: torch.Tensor) -> torch.Tensor:
    packer = tw.parse(codec).bind(Layout.packed([Spec("w", tuple(x.shape))]), CONTEXT).packer
    payload = torch.zeros(packer.payload_bytes, dtype=torch.uint8)
    packer.encode(x.flatten(), NO_WORDS, Key(0, 0, 0), payload)
    out = torch.empty(x.numel())
    packer.decode_local(payload, NO_WORDS, out)
    return out


def test_0_16_bits_an_element() -> None:
    plan = tw.Plan.of(tw.Policy.of("sparseloco"), tw.Model((Spec("w", (4096, 4096)),)), 2)
    assert 8 * plan.step_bytes() / 4096**2 < 0.165


def test_of_every_chunk_the_largest_in_four_values() -> None:
    x = torch.randn(4 * 4096, generator=torch.Generator().manual_seed(0))
    found = decoded("sparseloco", x)
    for chunk, kept in zip(x.view(4, -1), found.view(4, -1), strict=True):
        assert int((kept != 0).sum()) == 64
        largest = chunk.abs().topk(64).indices
        assert set(kept.nonzero().flatten().tolist()) == set(largest.tolist())
    assert len(found[found != 0].unique()) <= 4
    chosen = found != 0
    assert (found - x)[chosen].norm() < 0.35 * x[chosen].norm()


def test_a_bin_stands_for_its_mean() -> None:
    """Two values of each sign: every bin holds one of them, and nothing is lost."""
    x = torch.tensor([3.0, 3.0, -3.0, -3.0, 3.0, -3.0])
    assert torch.equal(decoded("bins", x), x)


def test_equal_values_and_empty_tensors() -> None:
    assert torch.equal(decoded("bins", torch.full((5,), 2.0)), torch.full((5,), 2.0))
    assert BinsPacker(Layout.packed([Spec("w", (0,))]), CONTEXT).payload_bytes == 0


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_not_finite_is_told(value: float) -> None:
    x = torch.randn(100)
    x[7] = value
    assert bool(decoded("bins", x).isnan().any())


@pytest.mark.parametrize("text", ["sparseloco:0", "sparseloco:k=5000"])
def test_bad_options_are_refused(text: str) -> None:
    with pytest.raises(CodecError, match="must be at least 1 and at most all"):
        tw.parse(text)


def test_payloads_are_gathered() -> None:
    plan = tw.Plan.of(tw.Policy.of("sparseloco"), tw.Model((Spec("w", (4096, 64)),)), 8)
    assert plan.entries[0].route == "allgather"
    assert plan.entries[0].feedback == "residual:decay=0.95"


def test_what_is_held_back_fades() -> None:
    """e = 0.5 e + D - sent: the invariant with decay."""
    feedback, piece = make_feedback("residual:decay=0.5"), Piece("w", 4, 0, 0, 4)
    x = torch.tensor([4.0, 2.0, 1.0, 0.0])
    feedback.before(x, [piece], 1.0)
    feedback.after(Transmission(x, torch.tensor([4.0, 0.0, 0.0, 0.0]), 0, [piece], 1.0))
    feedback.commit()
    again = torch.ones(4)
    feedback.before(again, [piece], 1.0)
    assert again.tolist() == [1.0, 2.0, 1.5, 1.0]


@pytest.mark.parametrize("decay", ["0", "1.5", "-1"])
def test_a_decay_beyond_its_range_is_refused(decay: str) -> None:
    with pytest.raises(PlanError, match="must be above 0 and at most 1"):
        make_feedback(f"residual:decay={decay}")

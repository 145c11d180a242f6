"""dense, fp16 and bf16: what is on the wire and how it adds up."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from packing import bound, one_tensor, pack, payload_bytes
from simulation import same_bits
from thinwire.codecs.floats import Cast, Dense
from thinwire.tensors import Layout, Spec


@pytest.mark.parametrize(("text", "itemsize"), [("dense", 4), ("fp16", 2), ("bf16", 2)])
@pytest.mark.parametrize("numel", [0, 1, 2, 3, 4, 5, 1009])
def test_payloads_are_the_numbers_padded_to_8_bytes(text: str, itemsize: int, numel: int) -> None:
    packer = bound(text, one_tensor(numel)).packer
    assert payload_bytes(packer) == -(-numel * itemsize // 8) * 8


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dense_sends_the_tensors_own_dtype(dtype: torch.dtype) -> None:
    layout = Layout.packed([Spec("w", (37,), dtype)])
    x = torch.randn(37).to(dtype)
    packed = pack("dense", layout, [x, x, x])
    wire = packed.payloads[0].view(dtype)
    assert same_bits(wire[:37], x * (1 / 3))  # as DDP does it
    assert not wire[37:].any()


def scale(xs: list[Tensor]) -> float:
    """The power of two that brings the largest |x| into 2^14 .. 2^15."""
    return 2.0 ** (14 - math.floor(math.log2(max(float(x.abs().max()) for x in xs))))


@pytest.mark.parametrize(("text", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_cast_rounds_once_on_the_way_and_once_at_the_owner(text: str, dtype: torch.dtype) -> None:
    """Owners add in float32: the result is the correctly rounded sum of what was sent."""
    xs = [torch.randn(1000) for _ in range(5)]
    times = scale(xs) if text == "fp16" else 1.0
    sent = [(x / 5 * times).to(dtype) for x in xs]
    packed = pack(text, one_tensor(1000), xs)
    for payload, wire in zip(packed.payloads, sent, strict=True):
        assert same_bits(payload.view(dtype), wire)
    expected = torch.zeros(1000)
    for wire in sent:
        expected = expected + wire.float()
    assert same_bits(packed.mean(xs[0]), expected.to(dtype).float() / times)


def test_large_casts_are_cut_into_runs() -> None:
    x = torch.randn((1 << 16) + 5)
    wire = pack("bf16", one_tensor(x.numel()), [x, x]).payloads[0].view(torch.bfloat16)
    assert same_bits(wire[: x.numel()], (x / 2).bfloat16())


@pytest.mark.parametrize("magnitude", [1e-38, 1e-30, 1e-9, 1.0, 65504.0, 1e9, 1e30, 3.4e38])
def test_fp16_keeps_11_bits_of_numbers_of_any_size(magnitude: float) -> None:
    """Unscaled, what is above 65,504 would be infinite, and what is below 3e-8 zero."""
    xs = [magnitude * torch.linspace(-1, 1, 101) for _ in range(3)]
    packed = pack("fp16", one_tensor(101), xs)
    for found in (packed.mean(xs[0]), packed.own(1, xs[0])):
        assert float((found - xs[0]).abs().max()) <= 2**-10 * magnitude


def test_fp16_of_ordinary_numbers_is_what_it_was_without_a_scale() -> None:
    """Scaling by a power of two is exact: only what was below fp16's normal numbers is finer than before."""
    xs = [torch.randn(4096) for _ in range(4)]
    plain = [(x / 4).half() for x in xs]
    packed = pack("fp16", one_tensor(4096), xs)
    for rank, wire in enumerate(plain):
        normal = wire.abs() >= torch.finfo(torch.float16).smallest_normal
        assert int(normal.sum()) > 4000
        assert same_bits(packed.own(rank, xs[0])[normal], 4 * wire.float()[normal])


@pytest.mark.parametrize("world", [2, 7, 64])
def test_sums_of_fp16_over_many_ranks_do_not_overflow(world: int) -> None:
    """An all-reduce adds in fp16, in whatever order: equal numbers of all ranks are the worst case."""
    xs = [torch.tensor([1e9, -1e9, 1.0])] * world
    total = torch.zeros(4, dtype=torch.float16)
    for payload in pack("fp16", one_tensor(3), xs).payloads:
        total += payload.view(torch.float16)
    assert torch.isfinite(total).all()
    assert total[0] > 2**13


def test_one_scale_for_all_ranks_tensor_by_tensor() -> None:
    layout = Layout.packed([Spec("small", (3,)), Spec("empty", (0,)), Spec("large", (2,))])
    xs = [torch.tensor([1e-9, -2e-9, 0.0, 1e9, 5e8]) * (rank + 1) for rank in range(3)]
    packed = pack("fp16", layout, xs)
    assert packed.shared[0].view(torch.float32).tolist() == pytest.approx([6e-9, 3e9])
    torch.testing.assert_close(packed.mean(xs[0]), 2 * xs[0], rtol=2**-9, atol=0.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_on_one_rank_is_not_finite_in_the_mean(bad: float) -> None:
    xs = [torch.ones(5), torch.ones(5)]
    xs[1][3] = bad
    mean = pack("fp16", one_tensor(5), xs).mean(xs[0])
    assert not torch.isfinite(mean[3])
    assert torch.isfinite(mean[:3]).all()


def test_tensors_are_taken_where_they_lie() -> None:
    """Between a lane's tensors there may be others; they are neither read nor written."""
    layout = Layout((Spec("a", (3,)), Spec("b", (2,))), (1, 6))
    x = torch.arange(9.0)
    packed = pack("bf16", layout, [x])
    assert packed.payloads[0].view(torch.bfloat16)[:5].tolist() == [1, 2, 3, 6, 7]
    rubbish = -12345.0
    assert packed.mean(x).tolist() == [rubbish, 1, 2, 3, rubbish, rubbish, 6, 7, rubbish]


def test_what_they_declare() -> None:
    assert (Dense().own_dtype, Cast().own_dtype) == (True, False)
    assert Dense().near_lossless
    assert Cast().near_lossless

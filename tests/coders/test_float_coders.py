"""dense, fp16 and bf16: what is on the wire and how it adds up."""

from __future__ import annotations

import pytest
import torch

from packing import bound, one_tensor, pack, payload_bytes
from simulation import same_bits
from thinwire.codecs.coders.floats import Cast, Dense
from thinwire.tensors.layout import Layout
from thinwire.tensors.spec import Spec


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


@pytest.mark.parametrize(("text", "dtype"), [("fp16", torch.float16), ("bf16", torch.bfloat16)])
def test_cast_rounds_once_on_the_way_and_once_at_the_owner(text: str, dtype: torch.dtype) -> None:
    """Owners add in float32: the result is the correctly rounded sum of what was sent."""
    xs = [torch.randn(1000) for _ in range(5)]
    sent = [(x / 5).to(dtype) for x in xs]
    packed = pack(text, one_tensor(1000), xs)
    for payload, wire in zip(packed.payloads, sent, strict=True):
        assert same_bits(payload.view(dtype), wire)
    expected = torch.zeros(1000)
    for wire in sent:
        expected = expected + wire.float()
    assert same_bits(packed.mean(xs[0]), expected.to(dtype).float())


def test_large_casts_are_cut_into_runs() -> None:
    x = torch.randn((1 << 16) + 5)
    wire = pack("bf16", one_tensor(x.numel()), [x, x]).payloads[0].view(torch.bfloat16)
    assert same_bits(wire[: x.numel()], (x / 2).bfloat16())


def test_fp16_overflow_is_infinite_not_wrong() -> None:
    x = torch.tensor([1e6, 1.0])
    assert pack("fp16", one_tensor(2), [x]).mean(x).tolist() == [torch.inf, 1.0]
    assert torch.isfinite(pack("bf16", one_tensor(2), [x]).mean(x)).all()


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
    assert Dense().gentle
    assert Cast().gentle

"""The merge algebra: how payloads merge follows from the links."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import thinwire as tw
from packing import bound, transform
from thinwire.codecs.clip import Clip
from thinwire.codecs.codec import Codec
from thinwire.codecs.coder import Coder, Context, Merge, Packer
from thinwire.codecs.floats import Cast, Dense
from thinwire.codecs.stage import BoundStage, Learned, LinearStage, SelectingStage
from thinwire.codecs.terngrad import TernGrad
from thinwire.tensors import Layout, Spec


@dataclass(frozen=True)
class Halve(LinearStage):
    """A linear stage whose inverse doubles: numbers before and behind it differ, unlike with clip."""

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        return BoundHalve(layout)


class BoundHalve(BoundStage):
    def __init__(self, layout: Layout) -> None:
        self.layout, self.out = layout, Layout.packed(layout.specs)

    def forward(self, x: Tensor, shared: Tensor) -> Tensor:
        return torch.cat([x[piece] / 2 for piece in self.layout.slices])

    def inverse(self, y: Tensor, x: Tensor) -> None:
        for source, target in zip(self.out.slices, self.layout.slices, strict=True):
            x[target] = y[source] * 2


@dataclass(frozen=True)
class Choose(SelectingStage):
    """A stage whose decoding needs something only the rank's own payload carries, like indices."""

    feedback = "residual"

    def check(self, coder: Coder) -> None:
        pass

    def bind(self, coder: Coder, layout: Layout, context: Context, phase: str) -> Packer:
        return coder.bind(layout, context)


@pytest.mark.parametrize(
    ("stages", "coder", "merge"),
    [
        ((), Dense(), Merge.SUM),
        ((), Cast("bf16"), Merge.SUM),
        ((), TernGrad(), Merge.INT),
        ((), TernGrad(scales="own"), Merge.GATHER),
        ((Clip(),), Dense(), Merge.SUM),
        ((Clip(), Halve()), Cast(), Merge.SUM),
        ((Clip(), Halve()), TernGrad(), Merge.INT),
        ((Halve(),), TernGrad(scales="own"), Merge.GATHER),
    ],
)
def test_merge_follows_from_the_links(stages: tuple[LinearStage, ...], coder: Coder, merge: Merge) -> None:
    assert Codec("test", stages, coder).merge is merge
    assert Codec("test", stages, coder, Choose()).merge is Merge.GATHER


def test_the_memory_is_that_of_the_link_that_drops_something() -> None:
    assert Codec("test", (Clip(),), TernGrad()).feedback == "none"
    assert Codec("test", (Clip(),), TernGrad(), Choose()).feedback == "residual"


def test_only_a_bare_dense_coder_keeps_the_dtype() -> None:
    assert tw.parse("dense").own_dtype
    assert not tw.parse("clip >> dense").own_dtype
    assert not tw.parse("bf16").own_dtype


def test_stages_make_a_gentle_coder_rough() -> None:
    assert tw.parse("bf16").near_lossless
    assert not tw.parse("clip >> bf16").near_lossless
    assert not tw.parse("terngrad").near_lossless


def test_stages_run_forwards_and_decode_backwards() -> None:
    layout = Layout((Spec("a", (3,)), Spec("b", (2,))), (1, 5))
    codec = Codec("test", (Halve(), Halve(), Halve()), Dense()).bind(layout, bound("dense", layout).context)
    x = torch.tensor([0.0, 8.0, 16.0, 24.0, 0.0, 32.0, 40.0])
    (y,) = transform([codec], [x])
    assert y.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    back = torch.zeros(7)
    codec.finish(y, back)
    assert torch.equal(back, x)


def test_without_stages_numbers_are_not_copied() -> None:
    layout = Layout.packed([Spec("a", (3,))])
    x = torch.zeros(3)
    codec = bound("terngrad", layout)
    assert transform([codec], [x])[0] is x
    assert codec.decoded(x) is x


def test_offers_are_zero_words_where_nothing_is_agreed() -> None:
    layout = Layout.packed([Spec("a", (3,)), Spec("b", (64,))])
    x = torch.ones(67)
    sizes = [
        bound(t, layout).maxima(x).numel()
        for t in ("dense", "terngrad:scales=own", "terngrad", "terngrad:block=32")
    ]
    assert sizes == [0, 0, 2, 3]

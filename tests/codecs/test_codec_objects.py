"""Codecs as objects, and codecs of the user's own module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import thinwire as tw
from simulation import Simulation, assert_same, gaussian, specs_of
from thinwire.codecs.codec import codec_of
from thinwire.errors import CodecError
from thinwire.plans.policy import Policy

SPECS = specs_of({"w": (40, 50), "odd": 601})
OWN = '''
"""A codec of somebody else's: numbers rounded to a grid."""
from dataclasses import dataclass
import torch
import thinwire as tw


@dataclass(frozen=True)
class Rounded(tw.Coder):
    merge = tw.Merge.GATHER
    feedback = "residual"
    grid: float = tw.option(0.5, float, "a positive number", repr)

    def bind(self, layout, context):
        return RoundedPacker(self, layout, context)


class RoundedPacker(tw.GatherPacker):
    def __init__(self, coder, layout, context):
        self.coder = coder
        super().__init__(layout, context, layout.numel)

    def rebind(self, layout):
        return RoundedPacker(self.coder, layout, self.context)

    def encode(self, x, agreed, key, payload):
        numbers = torch.cat([x[piece] for piece in self.layout.slices])
        codes = (numbers / self.coder.grid).round().clamp(-127, 127)
        payload.zero_()
        payload[: self.layout.numel].view(torch.int8).copy_(codes)

    def add_up(self, payloads, x):
        codes = payloads[:, : self.layout.numel].contiguous().view(torch.int8).float()
        total = codes.sum(0) * self.coder.grid / payloads.shape[0]
        for piece in self.layout.pieces():
            x[piece.where], total = total[: piece.count], total[piece.count :]
'''


@pytest.mark.parametrize(
    ("made", "text"),
    [
        (tw.TernGrad(clip=2.0), "terngrad:clip=2.0"),
        (tw.TopK(0.1) >> tw.Cast("bf16"), "topk:0.1 >> bf16"),
        (tw.TopK(0.1), "topk:0.1"),
        (tw.FFT(0.5), "fft:0.5"),
        (tw.Clip(2.0) >> tw.TopK(0.3) >> tw.QSGD(4, scales="own"), "clip:2 >> topk:0.3 >> qsgd:4,scales=own"),
        (tw.parse("terngrad"), "terngrad"),
    ],
)
def test_objects_are_the_codecs_of_their_texts(made: tw.Codec, text: str) -> None:
    assert codec_of(made).canonical == tw.parse(text).canonical
    one, other = (Simulation(codec, SPECS, 2).run(gaussian(SPECS), 2)[0] for codec in (made, text))
    for a, b in zip(one, other, strict=True):
        assert_same(a, b)


def test_rules_take_objects_too() -> None:
    policy = Policy.of({"w": tw.TernGrad(clip=2.0), "*": "dense"})
    assert [str(codec) for codec in policy.codecs] == ["TernGrad(clip=2.0)", "dense"]


def test_chains_of_objects_are_checked_like_texts() -> None:
    with pytest.raises(CodecError, match="must be the last link"):
        codec_of(tw.Cast("fp16") >> tw.TernGrad())
    with pytest.raises(CodecError, match="ends in a stage"):
        codec_of(tw.Clip())
    with pytest.raises(CodecError, match=r'3\.5 is no codec: give a text like "terngrad"'):
        codec_of(3.5)  # type: ignore[arg-type]


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    (tmp_path / "somebodys_codecs.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    yield "somebodys_codecs"
    sys.modules.pop("somebodys_codecs", None)


def test_a_codec_of_ones_own_module(own: str) -> None:
    """By its path, in texts, chains and rules; nothing of thinwire is changed for it."""
    text = f"{own}.Rounded:0.25"
    codec = tw.parse(text)
    assert (codec.feedback, codec.merge.value, codec.canonical) == (
        "residual",
        "gather",
        "Rounded(grid=0.25)",
    )
    means = Simulation(text, SPECS, 3).run(
        lambda step, rank: {s.name: torch.full(s.shape, 0.3) for s in SPECS}, 8
    )
    sent = sum(mean["w"].double() for mean in means[0])
    torch.testing.assert_close(sent, torch.full((40, 50), 8 * 0.3).double(), rtol=0, atol=0.13)
    assert tw.parse(f"topk:0.1 >> {text}").merge is tw.Merge.GATHER


def test_what_cannot_be_imported_says_so(own: str) -> None:
    for text, sentence in (
        ("nowhere.Rounded", r'"nowhere.Rounded" cannot be imported .*PYTHONPATH'),
        (f"{own}.Squared", "cannot be imported"),
        (f"{own}.RoundedPacker", "is no link: derive it from thinwire.Coder"),
        (f"{own}.Rounded:grd=1", 'has no option "grd": it takes grid'),
    ):
        with pytest.raises(CodecError, match=sentence):
            tw.parse(text)

"""Codec texts: what is understood, and what every wrong text is told."""

from __future__ import annotations

import dataclasses
import math

import pytest

import thinwire as tw
from thinwire.codecs.catalog import CATALOG, CodecEntry
from thinwire.codecs.clip import Clip
from thinwire.codecs.coder import Coder, Merge
from thinwire.codecs.floats import Cast, Dense
from thinwire.codecs.qsgd import QSGD
from thinwire.codecs.sign import Sign
from thinwire.codecs.stage import Chain, Stage
from thinwire.codecs.terngrad import TernGrad
from thinwire.errors import CodecError


@pytest.mark.parametrize(
    ("text", "coder"),
    [
        ("dense", Dense()),
        ("fp16", Cast("fp16")),
        ("bf16", Cast("bf16")),
        ("terngrad", TernGrad()),
        ("terngrad:", TernGrad()),
        ("terngrad:3", TernGrad(clip=3.0)),
        ("terngrad:off", TernGrad(clip=math.inf)),
        ("terngrad:clip=2.5", TernGrad()),
        ("terngrad:clip=off,block=2048", TernGrad(clip=math.inf, block=2048)),
        ("terngrad:block=layer", TernGrad()),
        (" terngrad : clip = 1 , scaler = sigma , ", TernGrad(clip=1.0, scaler="sigma")),
        ("terngrad:2,scales=own,wire=2bit", TernGrad(clip=2.0, scales="own", wire="2bit")),
        ("qsgd", QSGD()),
        ("qsgd:4", QSGD()),
        ("qsgd:8,norm=l2", QSGD(bits=8, norm="l2")),
        ("qsgd:bits=2,block=layer,scales=own", QSGD(bits=2, block=0, scales="own")),
        ("sign", Sign()),
        ("sign:values=scaled,block=1024", Sign(values="scaled", block=1024)),
        ("ternary", TernGrad(clip=math.inf)),
        ("ternary:block=64", TernGrad(clip=math.inf, block=64)),
    ],
)
def test_good_texts(text: str, coder: Coder) -> None:
    codec = tw.parse(text)
    assert codec.coder == coder
    assert codec.stages == ()
    assert str(codec) == text


def test_chains() -> None:
    codec = tw.parse("clip:3 >> clip >> ternary:block=32")
    assert codec.stages == (Clip(3.0), Clip(2.5))
    assert codec.coder == TernGrad(clip=math.inf, block=32)
    assert tw.parse("clip>>bf16").coder == Cast("bf16")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", 'codec "": there is no codec "": known are dense, fp16, bf16, terngrad'),
        (
            "terngard",
            'codec "terngard": there is no codec "terngard": did you mean "terngrad"? known are dense',
        ),
        ("zip", 'there is no codec "zip": known are'),
        ("TernGrad", 'there is no codec "TernGrad": did you mean "terngrad"?'),
        (
            "terngrad:clp=2",
            'codec "terngrad:clp=2": terngrad has no option "clp": it takes clip, scaler, scales',
        ),
        ("terngrad:=2", 'terngrad has no option ""'),
        ("terngrad:clip=two", 'terngrad: clip="two" does not fit: a positive number, or "off"'),
        ("terngrad:clip=", 'terngrad: clip="" does not fit: a positive number'),
        ("terngrad:two", 'terngrad: clip="two" does not fit'),
        ("terngrad:clip=0", "clip=0 must be positive; use clip=off"),
        ("terngrad:clip=nan", "clip=nan must be positive"),
        ("terngrad:-1", "clip=-1 must be positive"),
        ("terngrad:block=48", "block=48 must be a multiple of 32, or layer"),
        ("terngrad:block=1e3", 'block="1e3" does not fit: "layer", or a multiple of 32 elements'),
        ("terngrad:scaler=mean", 'scaler="mean" does not fit: "max" or "sigma"'),
        ("terngrad:scales=Own", 'scales="Own" does not fit: "shared" or "own"'),
        ("terngrad:wire=base4", 'wire="base4" does not fit: "base3" or "2bit"'),
        ("terngrad:clip=off,scaler=sigma", "scaler=sigma is c*sigma, so it needs clip; use scaler=max"),
        ("terngrad:clip=1,clip=2", "option clip of terngrad is given twice"),
        ("terngrad:1,clip=2", "option clip of terngrad is given twice"),
        ("qsgd:9", "qsgd: bits=9 must be 2 to 8; for one bit use sign, for 16 use bf16"),
        ("qsgd:1", "qsgd: bits=1 must be 2 to 8"),
        ("qsgd:4.5", 'qsgd: bits="4.5" does not fit: 2 to 8 bits an element'),
        ("qsgd:4,block=100", "qsgd: block=100 must be a multiple of 32, or layer"),
        ("qsgd:4,norm=l1", 'norm="l1" does not fit: "max" or "l2"'),
        ("qsgd:4,scales=none", 'scales="none" does not fit: "shared" or "own"'),
        ("sign:1", 'sign takes no bare value "1"'),
        ("sign:values=median", 'values="median" does not fit: "mean", "scaled" or "rms"'),
        ("sign:block=-32", "sign: block=-32 must be a multiple of 32, or layer"),
        ("dense:1", 'dense takes no bare value "1": write option=value'),
        ("dense:x=1", 'dense has no option "x": it takes none at all'),
        ("fp16:to=bf16", 'to is fixed by the name "fp16"'),
        ("ternary:clip=2", 'clip is fixed by the name "ternary"'),
        ("clip", 'codec "clip" ends in a stage: add a coder behind it, for example ">> ternary"'),
        ("clip:0 >> dense", "clip: c=0 must be positive; leave the stage out"),
        ("clip:off >> dense", 'clip: c="off" does not fit: a positive number of standard deviations'),
        (
            "bf16 >> terngrad",
            'codec "bf16 >> terngrad": "bf16" packs values into bits, so it must be the last',
        ),
        ("clip >>", 'there is no codec ""'),
        (">> dense", 'there is no codec ""'),
        ("clip > dense", 'there is no codec "clip > dense": known are'),
    ],
)
def test_bad_texts(text: str, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        tw.parse(text)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CATALOG)
def test_every_entry_can_be_made_and_explained(name: str) -> None:
    entry: CodecEntry = CATALOG[name]
    link = entry.load()(**entry.fixed)
    assert isinstance(link, Stage | Coder | Chain)
    assert dataclasses.is_dataclass(link)
    assert entry.about
    fields = {field.name: field for field in dataclasses.fields(link)}
    assert set(entry.fixed) <= set(fields)
    assert entry.bare is None or entry.bare in fields
    for field in fields.values():
        assert {"read", "rule", "show"} <= field.metadata.keys()
        assert field.metadata["read"](field.metadata["show"](field.default)) == field.default


def test_equal_codecs_have_equal_canonical_texts() -> None:
    assert tw.parse("terngrad").canonical == tw.parse(" terngrad:clip=2.50").canonical
    assert tw.parse("terngrad:off").canonical == tw.parse("ternary").canonical


def test_different_codecs_have_different_canonical_texts() -> None:
    """To the last digit: ranks compare these texts, and lanes are grouped by them."""
    texts = [
        "dense",
        "fp16",
        "bf16",
        "terngrad",
        "terngrad:off",
        "terngrad:clip=2.5000001",
        "terngrad:clip=2.5000002",
        "terngrad:scaler=sigma",
        "terngrad:scales=own",
        "terngrad:block=32",
        "terngrad:wire=2bit",
        "qsgd",
        "qsgd:3",
        "qsgd:block=64",
        "qsgd:block=layer",
        "qsgd:norm=l2",
        "qsgd:scales=own",
        "sign",
        "sign:values=scaled",
        "sign:block=64",
        "clip >> ternary",
        "clip:2.5000001 >> ternary",
        "clip >> clip >> ternary",
        "clip >> dense",
    ]
    assert len({tw.parse(text).canonical for text in texts}) == len(texts)


def test_merges_of_the_catalog() -> None:
    merges = {text: tw.parse(text).merge for text in ("dense", "fp16", "terngrad", "terngrad:scales=own")}
    assert list(merges.values()) == [Merge.SUM, Merge.SUM, Merge.INT, Merge.GATHER]

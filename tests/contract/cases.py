"""Every codec of the catalog with every legal route: what the obligations of this folder are run over.

A codec that is added to the catalog is picked up by itself; options worth a run of their own go to VARIANTS.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

import thinwire as tw
from thinwire.codecs.catalog import CATALOG
from thinwire.errors import CodecError, PlanError
from thinwire.routes import ROUTES
from thinwire.tensors import Layout

WORLDS = (1, 2, 3, 4, 5, 8)
# GradiVeQ with a sample phase of one step: whole exchanges reach its compressed phase.
COMPRESSED = "gradiveq:4,slice=32,sample=1,compress=400,layers=all"
CODERS = ("dense", "ternary")  # what a stage that cannot end a chain is tried with
VARIANTS = (
    "terngrad:clip=off",
    "terngrad:clip=0.5,wire=2bit",
    "terngrad:scaler=sigma",
    "terngrad:scales=own",
    "terngrad:block=320",
    "terngrad:block=192,scales=own,wire=2bit",
    "ternary:step=1.2,rounding=nearest,block=64",
    "terngrad:rounding=nearest,wire=2bit",
    "qsgd:2,block=layer",
    "qsgd:5,step=0.2,block=layer",
    "qsgd:4,rounding=nearest",
    "rotated:7,unbiased=off",
    "rotated:15,block=64",
    "rotate:64 >> qsgd:4,block=layer,step=0.3",
    "rotate:32 >> sign",
    "rotate:128 >> topk:0.1",
    "rotate:32 >> fft:0.5,chunk=64",
    "clip:2 >> rotate:64 >> bf16",
    "qsgd:3,norm=l2",
    "qsgd:5,block=64,scales=own",
    "qsgd:8,block=32",
    "clip >> qsgd:7,norm=l2,scales=own",
    "rangefloat:4",
    "rangefloat:5,block=64",
    "rangefloat:8,max=0.5",
    "rangefloat:9,max=2.0,mantissa=4",
    "clip:2 >> rangefloat:16,mantissa=2",
    "sign:block=96",
    "sign:values=scaled",
    "sign:block=column",
    "sign:block=column,values=scaled",
    "clip:1 >> bf16",
    "clip:3 >> clip:2 >> ternary:scales=own",
    "topk:0.1,chunk=64 >> bf16",
    "topk:0.4 >> terngrad:scales=own",
    "clip:2 >> topk:0.3",
    "dgc:0.05,warmup=2",
    "fft:0.9,chunk=64",
    "fft:0.5,chunk=tensor >> fp16",
    "fft:0 >> dense",
    "dct:128 >> topk:0.15 >> rangefloat:10",
    "topk:drop=0.7,chunk=32 >> rangefloat:8",
    COMPRESSED,
)


def _of_entry(name: str) -> list[str]:
    """The codec of that name, or, for a stage, codecs that begin with it."""
    try:
        tw.parse(name)
    except CodecError:
        return [f"{name} >> {coder}" for coder in CODERS]
    return [name]


def phase(text: str, layout: Layout) -> dict[str, Any]:
    """The step whose phase a payload is made in, and what was learnt by then.

    Of GradiVeQ the compressed phase: its basis is every fourth unit vector, and the mean is not zero.
    """
    if text != COMPRESSED:
        return {}
    known = {"basis": torch.eye(32)[:, ::4].contiguous(), "mean": torch.arange(32.0) / 64}
    learned = {name: {**known, "channel": torch.zeros(())} for name in layout.names}
    return {"phase_of": 2, "learned": learned}


@cache
def texts() -> tuple[str, ...]:
    return (*(text for name in CATALOG for text in _of_entry(name)), *VARIANTS)


@cache
def routes(text: str) -> tuple[str, ...]:
    """The routes that take a codec."""
    legal = []
    for name, route in ROUTES.items():
        try:
            route.check(tw.parse(text))
        except PlanError:
            continue
        legal.append(name)
    return tuple(legal)


def pairs() -> list[tuple[str, str]]:
    return [(text, route) for text in texts() for route in routes(text)]

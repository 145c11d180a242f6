"""Obligations towards buckets of every dtype, and buffers DDP would never give."""

from __future__ import annotations

import pytest
import torch
from cases import COMPRESSED, pairs, texts

import thinwire as tw
from simulation import Gradients, Simulation, assert_ranks_agree, gaussian, same_bits, specs_of
from thinwire.errors import ThinwireError
from thinwire.exchange.engine import Bucket
from thinwire.groups.thread import ThreadGroup
from thinwire.tensors import Layout

SIZES: dict[str, int | tuple[int, ...]] = {"matrix": (17, 31), "row": 33, "one": (), "empty": 0}
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("text", "route"), pairs())
def test_gradients_of_every_dtype(text: str, route: str, dtype: torch.dtype) -> None:
    """Means come back in the bucket's dtype; codecs that work in float32 see the same numbers in each."""
    specs = specs_of(SIZES, dtype)
    source = gaussian(specs)
    steps = 1 if text == COMPRESSED and dtype.itemsize == 2 else 2  # of rounded means it learns another basis
    means = Simulation(text, specs, 3, route=route).run(source, steps)
    assert_ranks_agree(means)
    assert all(mean.dtype == dtype for mean in means[0][0].values())
    wide = Simulation(text, specs_of(SIZES), 3, route=route).run(
        lambda step, rank: {name: g.float() for name, g in source(step, rank).items()}, steps
    )
    for found, expected in zip(means[0], wide[0], strict=True):
        compare(found, expected, text, dtype)


def compare(found: Gradients, expected: Gradients, text: str, dtype: torch.dtype) -> None:
    exactly = not tw.parse(text).coder.own_dtype
    for name, mean in found.items():
        if exactly:
            assert same_bits(mean, expected[name].to(dtype))
        else:
            eps = max(torch.finfo(dtype).eps, 1e-6)
            torch.testing.assert_close(mean.float(), expected[name], rtol=4 * eps, atol=4 * eps)


@pytest.mark.parametrize("text", texts())
def test_strided_buffers_are_right_or_refused(text: str) -> None:
    """A bucket is flat; a strided one must never be misread in silence."""
    specs = specs_of({"matrix": (17, 31), "row": 33})
    layout = Layout.packed(specs)
    simulation = Simulation(text, specs, 1)
    gradients = gaussian(specs)(0, 0)
    expected = simulation.step(simulation.engine(ThreadGroup.make(1)[0]), gradients)
    storage = torch.zeros(2 * layout.numel)
    buffer = storage[::2]
    buffer.copy_(torch.cat([gradients[name].flatten() for name in layout.names]))
    try:
        simulation.engine(ThreadGroup.make(1)[0]).exchange(Bucket(buffer, layout))
    except (ThinwireError, TypeError, RuntimeError):
        return
    assert same_bits(buffer, torch.cat([expected[name].flatten() for name in layout.names]))


@pytest.mark.parametrize(("text", "route"), pairs())
def test_buckets_of_empty_tensors(text: str, route: str) -> None:
    specs = specs_of({"empty": 0, "flat": (3, 0)})
    for means in Simulation(text, specs, 3, route=route).run(gaussian(specs), steps=2):
        assert means[0]["flat"].shape == (3, 0)

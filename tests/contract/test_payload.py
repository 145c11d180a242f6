"""Obligations of a payload: what a codec does on one rank, before anything travels; every codec.

On the best kernels here: tests/kernels and tests/golden prove that all kernels make the same bytes.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from cases import phase, texts
from torch import Tensor

import packing
import thinwire as tw
from packing import Packed, one_tensor, payload_bytes, transform
from simulation import gaussian, same_bits, specs_of
from thinwire.codecs.codec import BoundCodec
from thinwire.codecs.coder import Merge
from thinwire.tensors import Key, Layout, Spec

SPECS = specs_of({"empty": 0, "one": 1, "row": 33, "odd": 601, "matrix": (20, 31)})
OFFSETS = (2, 2, 3, 40, 650)  # gaps before the first tensor, and between them
BUFFER = 1280

every_text = pytest.mark.parametrize("text", texts())


def layout_of(text: str) -> Layout:
    """The tensors that the codec does not refuse, where they lie."""
    codec = tw.parse(text)
    taken = [(s, o) for s, o in zip(SPECS, OFFSETS, strict=True) if codec.refuses(s) is None]
    assert taken, f"{text} refuses every tensor: add one that it takes"
    return Layout(tuple(s for s, _ in taken), tuple(o for _, o in taken))


def pack(text: str, layout: Layout, xs: list[Tensor], step: int = 0, filling: int = 0xAA) -> Packed:
    return packing.pack(text, layout, xs, step, filling=filling, **phase(text, layout))


def bound(text: str, layout: Layout, world: int = 1, rank: int = 0) -> BoundCodec:
    return packing.bound(text, layout, world, rank, **phase(text, layout))


def buffers(world: int) -> list[Tensor]:
    """One buffer a rank, with numbers in the gaps that nobody may read or write."""
    found = []
    for rank in range(world):
        x, gradients = torch.full((BUFFER,), 777.0), gaussian(SPECS, seed=2)(0, rank)
        for spec, offset in zip(SPECS, OFFSETS, strict=True):
            x[offset : offset + spec.numel] = gradients[spec.name].flatten()
        found.append(x)
    return found


def inside(x: Tensor, layout: Layout) -> Tensor:
    return torch.cat([x[piece] for piece in layout.slices])


def outside(x: Tensor, layout: Layout) -> Tensor:
    mask = torch.ones(BUFFER, dtype=torch.bool)
    for piece in layout.slices:
        mask[piece] = False
    return x[mask]


@every_text
def test_the_same_key_gives_the_same_bytes(text: str) -> None:
    """Encoding is pure, and fills every byte of the payload whatever was there before."""
    xs = buffers(2)
    first = pack(text, layout_of(text), xs, filling=0xAA)
    again = pack(text, layout_of(text), xs, filling=0x55)
    for a, b in zip(first.payloads, again.payloads, strict=True):
        assert same_bits(a, b)


@every_text
def test_encoding_changes_neither_the_gradient_nor_the_agreed_words(text: str) -> None:
    xs = buffers(1)
    before = xs[0].clone()
    codec = bound(text, layout_of(text))
    (y,) = transform([codec], xs)
    shared = codec.maxima(y)
    words = shared.clone()
    codec.packer.encode(y, shared, Key(0, 0, 0), torch.zeros(payload_bytes(codec.packer), dtype=torch.uint8))
    assert same_bits(xs[0], before)
    assert same_bits(shared, words)


@every_text
def test_one_rank_alone_decodes_what_its_payload_stands_for(text: str) -> None:
    """decode_own is what merging and decoding see for N = 1."""
    (x,) = buffers(1)
    packed = pack(text, layout_of(text), [x])
    assert same_bits(packed.own(0, x), packed.mean(x))


@every_text
def test_only_the_tensors_of_the_lane_are_written(text: str) -> None:
    xs = buffers(3)
    packed = pack(text, layout_of(text), xs)
    for decoded in (packed.mean(xs[0]), packed.own(1, xs[0])):
        assert (outside(decoded, layout_of(text)) == -12345.0).all()
        assert (inside(decoded, layout_of(text)) != -12345.0).all()


@every_text
def test_numbers_beside_the_tensors_do_not_matter(text: str) -> None:
    xs, layout = buffers(2), layout_of(text)
    others = []
    for x in xs:
        other = torch.full_like(x, torch.nan)
        other[::2] = 1e9
        for piece in layout.slices:
            other[piece] = x[piece]
        others.append(other)
    first, again = (pack(text, layout, inputs) for inputs in (xs, others))
    for a, b in zip(first.payloads, again.payloads, strict=True):
        assert same_bits(a, b)


@every_text
def test_parts_together_do_what_the_whole_does(text: str) -> None:
    """They decode to the same numbers; payloads that merge are, end to end, the payload of the whole."""
    (x,) = buffers(1)
    codec = bound(text, layout_of(text))
    (y,) = transform([codec], [x])
    shared, key = codec.maxima(y), Key(0, 0, 0)
    whole = torch.empty(payload_bytes(codec.packer), dtype=torch.uint8)
    codec.packer.encode(y, shared, key, whole)
    expected = torch.full_like(y, -1.0)
    codec.packer.decode_local(whole, shared, expected)
    for count in (2, 3, 7, 1000):
        parts, found = codec.packer.parts(count), torch.full_like(y, -1.0)
        assert 1 <= len(parts) <= count
        assert [part.first for part in parts] == [0, *(part.last for part in parts[:-1])]
        assert parts[-1].last == codec.inner.numel
        payloads = [torch.empty(payload_bytes(part.packer), dtype=torch.uint8) for part in parts]
        for part, payload in zip(parts, payloads, strict=True):
            part.packer.encode(y, shared, key, payload)
            part.packer.decode_local(payload, shared, found)
        if codec.packer.merges:
            assert same_bits(torch.cat(payloads), whole)
        assert same_bits(found, expected)


@every_text
def test_sizes_are_known_without_data(text: str) -> None:
    for numel, world in itertools.product((0, 1, 31, 32, 33, 159, 160, 161), (1, 2, 7)):
        if tw.parse(text).refuses(Spec("w", (numel,))) is None:
            packer = bound(text, one_tensor(numel), world).packer
            assert (payload_bytes(packer) > 0) == (numel > 0)
            assert packer.merged_bytes(0) == 0
            assert packer.merged_bytes(packer.num_granules) >= 0


def exact_mean(text: str, xs: list[Tensor]) -> Tensor:
    """The mean of what the stages let through, in float64: what an unbiased coder aims at."""
    layout = layout_of(text)
    codecs = [bound(text, layout, len(xs), rank) for rank in range(len(xs))]
    results = []
    for codec, y in zip(codecs, transform(codecs, xs), strict=True):
        x = torch.zeros(BUFFER) if codec.stages else y
        codec.finish(y, x)
        results.append(inside(x, layout).double())
    return torch.stack(results).mean(0)


@every_text
def test_errors_average_out_or_error_feedback_can_work_them_off(text: str) -> None:
    """The mean of many draws is exact (unbiased), or nearer to the gradient than nothing is (contraction)."""
    xs, layout, num_draws = buffers(2), layout_of(text), 100
    exact = exact_mean(text, xs)
    means = [pack(text, layout, xs, step).mean(xs[0]) for step in range(num_draws)]
    draws = torch.stack([inside(mean, layout).double() for mean in means])
    bias, noise = draws.mean(0) - exact, draws.std(0) / math.sqrt(num_draws)
    if (bias.abs() <= 6 * noise + 5e-3 * exact.abs() + 1e-6).all():
        return
    assert bias.norm() < exact.norm()


@every_text
def test_merging_loses_nothing_that_need_not_be_lost(text: str) -> None:
    """C3: the mean of the merged payloads is the mean of the decoded ones; floats may round once more."""
    xs = buffers(5)
    layout = layout_of(text)
    packed: Packed = pack(text, layout, xs)
    own = torch.stack([inside(packed.own(rank, xs[0]), layout).double() for rank in range(5)]).mean(0)
    found = inside(packed.mean(xs[0]), layout).double()
    rounding = (
        1e-6 if tw.parse(text).merge is not Merge.SUM else torch.finfo(packed.codecs[0].packer.wire_dtype).eps
    )
    assert (found - own).abs().max() <= 2 * rounding * own.abs().max() + 1e-6

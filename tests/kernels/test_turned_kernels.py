"""A rotation and its coder in one call: the bits of one call after the other, and bad tables are refused."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from torch import Tensor

from simulation import same_bits
from thinwire.codecs.codec import BoundCodec, parse
from thinwire.codecs.coder import Context
from thinwire.codecs.levels import CUT, SharedPacker
from thinwire.codecs.rotate import BoundRotation
from thinwire.codecs.turned import Turned, turned
from thinwire.kernels import Kernels, backends
from thinwire.tensors import Key, Layout, Spec

TEXTS = (
    "rotated",
    "rotated:7",
    "rotated:15,block=4096",
    "rotate:64 >> terngrad:off,step=1.2,rounding=nearest",
)
NATIVE = [kernels for kernels in backends().values() if kernels.turned is not None]
WORLD, NO_WORDS = 4, torch.empty(0, dtype=torch.int32)


@pytest.fixture(scope="module", params=NATIVE, ids=lambda kernels: kernels.name)
def native(request: pytest.FixtureRequest) -> Kernels:
    found: Kernels = request.param
    return found


def stage_of(bound: BoundCodec) -> BoundRotation:
    (rotation,) = bound.stages
    assert isinstance(rotation, BoundRotation)
    return rotation


def bound_codec(text: str, numels: list[int], kernels: Kernels) -> tuple[BoundCodec, Tensor]:
    """A codec that has drawn its rotation, and gradients for it."""
    layout = Layout.packed([Spec(f"t{i}", (numel,)) for i, numel in enumerate(numels)])
    bound = parse(text).bind(layout, Context(WORLD, 1, torch.device("cpu"), kernels))
    bound.begin(1.0, False, Key(7, 3, 1))
    x = torch.randn(layout.numel, generator=torch.Generator().manual_seed(sum(numels)))
    rotation = stage_of(bound)
    rotation.prepare(WORLD * rotation.summands(x))
    return bound, x


def apart(bound: BoundCodec, x: Tensor, first: int, last: int, shards: int) -> list[Tensor]:
    """Payload, sums and mean of a part, one call after the other."""
    rotation, packer = stage_of(bound), bound.packer.span(first, last)
    assert isinstance(packer, SharedPacker)
    y, mean = torch.empty(last - first), torch.zeros_like(x)
    payload = torch.zeros(packer.payload_bytes, dtype=torch.uint8)
    rotation.forward_range(x, y, first, last)
    packer.encode(y, NO_WORDS, Key(7, 3, 1), payload)
    sums = added(packer, payload, shards)
    packer.decode(sums, NO_WORDS, y)
    rotation.inverse_range(y, mean, first, last)
    return [payload, sums, mean]


def added(packer: SharedPacker, payload: Tensor, shards: int) -> Tensor:
    """The sums of WORLD payloads like this one, in shards, as owners make them."""
    per_shard = -(-packer.num_granules // shards)
    padded = torch.zeros(per_shard * shards * packer.granule_bytes, dtype=torch.uint8)
    padded[: payload.numel()] = payload
    sums = torch.zeros(shards, packer.merged_bytes(per_shard), dtype=torch.uint8)
    for part, merged in zip(padded.view(shards, -1), sums, strict=True):
        packer.merge(part.expand(WORLD, -1).contiguous(), NO_WORDS, merged)
    return sums


@given(
    text=st.sampled_from(TEXTS),
    numels=st.lists(st.integers(1, 3 * CUT), min_size=1, max_size=3),
    cut=st.integers(0, 9),
    shards=st.integers(1, 5),
    special=st.sampled_from((0.0, float("nan"), float("inf"), 3e38)),
)
@example("rotated", [5 * CUT + 77], 2, 4, 1.0)  # tiles across the borders of shards
@example("rotated:7", [5 * CUT + 77, 1, 512], 0, 3, 1.0)
def test_both_at_once_are_one_after_the_other(
    native: Kernels, text: str, numels: list[int], cut: int, shards: int, special: float
) -> None:
    bound, x = bound_codec(text, numels, native)
    x[len(x) // 2] = special
    points = sorted(set(stage_of(bound).cut_points()) & set(bound.packer.cut_points() or ()))
    first, last = points[cut % len(points)], bound.inner.numel
    payload, sums, mean = apart(bound, x, first, last, shards)
    both = turned(stage_of(bound), bound.packer.span(first, last), first, last)
    assert isinstance(both, Turned)
    found = torch.zeros_like(payload)
    both.encode(x, found)
    assert torch.equal(found, payload)
    x_found = torch.zeros_like(mean)
    both.decode(sums, x_found)
    assert same_bits(x_found, mean)


def test_what_is_drawn_or_measured_goes_one_after_the_other(native: Kernels) -> None:
    for text in ("rotate >> terngrad:1", "rotate >> qsgd:4", "rotate >> qsgd:4,step=0.4"):
        layout = Layout.packed([Spec("t", (CUT,))])
        bound = parse(text).bind(layout, Context(WORLD, 1, torch.device("cpu"), native))
        assert turned(stage_of(bound), bound.packer, 0, CUT) is None
    bound, _ = bound_codec("rotated", [CUT], backends()["reference"])
    assert turned(stage_of(bound), bound.packer, 0, CUT) is None


def test_bad_tables_are_refused(native: Kernels) -> None:
    """Runs and segments that are not the same elements would write beyond the payload or the room."""
    kernels = native.turned
    assert kernels is not None
    x, keys, factors = torch.zeros(1024), torch.zeros(2, dtype=torch.int32), torch.ones(2)
    runs, table = torch.tensor([0, 1024, 0, 0, 512, 0]), torch.tensor([0, 1024, 0, 0, 0, 0])
    steps, bounds, payload = torch.ones(1), torch.ones(1), torch.zeros(224, dtype=torch.uint8)
    words = torch.zeros(128, dtype=torch.int32)

    def encode(runs: Tensor = runs, table: Tensor = table, payload: Tensor = payload) -> None:
        kernels.encode_ternary(x, runs, keys, factors, 512, table, steps, bounds, 5, payload)

    def decode(runs: Tensor = runs, table: Tensor = table, words: Tensor = words) -> None:
        kernels.decode_sum(words, 1, 35, 4, 10, table, steps, runs, keys, factors, 512, x)

    encode()
    decode()
    shorter, elsewhere = table.clone(), table.clone()
    shorter[1], elsewhere[0] = 992, 512
    beyond = runs.clone()
    beyond[0] = 1
    for act in (encode, decode):
        for bad in (shorter, elsewhere, table.repeat(2)):
            with pytest.raises(ValueError, match=r"runs and segments|rows overlap"):
                act(table=bad)
        with pytest.raises(ValueError, match="outside its buffer"):
            act(runs=beyond)
    with pytest.raises(ValueError, match="outside the payload"):
        encode(payload=payload[:192])
    with pytest.raises(ValueError, match="wrong size"):
        decode(words=words[:96])
    with pytest.raises(ValueError, match="bits"):
        kernels.encode_qsgd(x, runs, keys, factors, 512, table, steps, 9, payload)

"""Specs and layouts have sizes, places and digests; keys give known, independent, uniform streams."""

from __future__ import annotations

import hashlib
import itertools

import pytest
import torch
from torch import Tensor

from thinwire.kernels.reference.hashing import counters, random24
from thinwire.tensors import Key, Layout, Spec, mix

CPU = torch.device("cpu")
NUM = 1 << 16


def stream(key: Key, name: str = "w", count: int = NUM) -> Tensor:
    return random24(counters(0, count, CPU), *key.words(name))


def test_the_mix_is_splitmix64() -> None:
    """The published outputs of splitmix64 for the seeds 0 and 1234567."""
    golden = 0x9E3779B97F4A7C15
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(golden) == 0x6E789E6AA1B965F4
    assert mix(1234567) == 6457827717110365317
    assert mix(1234567 + golden) == 3203168211198807973


@pytest.mark.parametrize(
    ("key", "name"),
    [
        (Key(0, 0, 0), ""),
        (Key(0, 0, 0), "fc.weight"),
        (Key(1, 2, 3), "conv1.weight"),
        (Key(-1, 2**40, 7), "größe"),
    ],
)
def test_words_follow_from_the_definition(key: Key, name: str) -> None:
    """m = mix(seed); then m = mix(m ^ part) for step, the name's hash and rank; the low word is k0."""
    name_hash = int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
    mixed = mix(key.seed % 2**64)
    for part in (key.step, name_hash, key.rank):
        mixed = mix(mixed ^ part)
    assert key.words(name) == (mixed % 2**32, mixed >> 32)


def test_known_words() -> None:
    """Written down once: a change would break resumed runs and ranks with another version."""
    assert Key(0, 0, 0).words("fc.weight") == (660655040, 2755083137)
    assert Key(1, 2, 3).words("conv1.weight") == (2581480799, 3972988162)


def test_keys_differ_in_every_part() -> None:
    keys = [
        Key(seed, step, rank).words(name)
        for seed, step, rank, name in itertools.product((0, 1, 2), (0, 1, 2), (0, 1, 2), ("a", "b"))
    ]
    assert len({k0 for k0, _ in keys}) == len(keys)
    assert len({k1 for _, k1 in keys}) == len(keys)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((Key(0, 0, 0), "w"), (Key(0, 0, 1), "w")),
        ((Key(0, 0, 0), "w"), (Key(0, 1, 0), "w")),
        ((Key(0, 0, 0), "w"), (Key(1, 0, 0), "w")),
        ((Key(0, 0, 0), "w"), (Key(0, 0, 0), "v")),
        ((Key(0, 0, 1), "w"), (Key(0, 1, 0), "w")),
    ],
)
def test_streams_of_two_keys_are_independent(a: tuple[Key, str], b: tuple[Key, str]) -> None:
    """They agree as often as chance has it, are not correlated, and are not permutations of one another."""
    x, y = stream(*a), stream(*b)
    assert (x == y).sum() <= 5
    correlation = torch.corrcoef(torch.stack([x, y]).double())[0, 1].item()
    assert abs(correlation) < 5 / NUM**0.5
    common = len(set(x.tolist()) & set(y.tolist()))
    by_chance = NUM * NUM / 2**24
    assert abs(common - by_chance) < 6 * by_chance**0.5


def test_the_second_key_word_is_what_keeps_streams_from_being_permutations() -> None:
    """With k0 alone, differing in its low bits, two streams are the same numbers in another order."""
    ramp = counters(0, NUM, CPU)
    first, same_k1, other_k1 = (random24(ramp, k0, k1) for k0, k1 in ((1, 9), (2, 9), (2, 10)))
    assert torch.equal(first.sort().values, same_k1.sort().values)
    assert not torch.equal(first.sort().values, other_k1.sort().values)


def test_streams_are_uniform() -> None:
    """Chi-square of 256 bins, and every one of the 24 bits is set half of the time; several keys."""
    count = 1 << 18
    for rank in range(4):
        x = stream(Key(3, 5, rank), count=count)
        bins = torch.bincount(x >> 16, minlength=256).double()
        chi_square = ((bins - count / 256) ** 2 / (count / 256)).sum().item()
        assert abs(chi_square - 255) < 5 * (2 * 255) ** 0.5
        for bit in range(24):
            ones = ((x >> bit) & 1).sum().item()
            assert abs(ones - count / 2) < 5 * (count / 4) ** 0.5
        neighbours = torch.corrcoef(torch.stack([x[:-1], x[1:]]).double())[0, 1].item()
        assert abs(neighbours) < 5 / count**0.5


def test_sizes() -> None:
    assert Spec("scalar", ()).numel == 1
    assert Spec("empty", (3, 0)).numel == 0
    assert str(Spec("w", (2, 3), torch.bfloat16)) == "w[2, 3]:bfloat16"


def test_tensors_lie_end_to_end() -> None:
    layout = Layout.packed([Spec("a", (2, 3)), Spec("b", (0,)), Spec("c", ())])
    assert layout.offsets == (0, 6, 6)
    assert layout.slices == (slice(0, 6), slice(6, 6), slice(6, 7))
    assert layout.numel == 7
    assert layout.names == ("a", "b", "c")


def test_digests_tell_layouts_apart() -> None:
    """Name, shape, dtype, order and place all count: ranks that differ in any of them must not exchange."""
    a, b = Spec("a", (2, 3)), Spec("b", (6,))
    layouts = [
        Layout.packed([a, b]),
        Layout.packed([b, a]),
        Layout.packed([a]),
        Layout.packed([Spec("a", (3, 2)), b]),
        Layout.packed([Spec("a", (2, 3), torch.float64), b]),
        Layout.packed([Spec("x", (2, 3)), b]),
        Layout((a, b), (0, 8)),
    ]
    assert len({layout.digest for layout in layouts}) == len(layouts)
    assert len(set(layouts)) == len(layouts)
    assert all(len(layout.digest) == 32 for layout in layouts)
    assert Layout.packed([a, b]).digest == layouts[0].digest
    assert hash(Layout.packed([a, b])) == hash(layouts[0])


def test_tensors_are_whole_groups() -> None:
    assert Layout.packed([Spec("a", (4,)), Spec("e", (0,))], group=2).group == 2
    with pytest.raises(ValueError, match=r"not whole groups of 2: a\[3\]"):
        Layout.packed([Spec("a", (3,))], group=2)

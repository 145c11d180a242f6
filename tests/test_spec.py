"""Specs and layouts: sizes, places and digests."""

from __future__ import annotations

import pytest
import torch

from thinwire.tensors import Layout, Spec


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

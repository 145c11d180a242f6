"""The zoo's networks have the sizes the literature gives them, and can be run with random weights."""

from __future__ import annotations

import numpy as np
import pytest

from thinwire_private.errors import ModelError
from thinwire_private.net.oracle import run
from thinwire_private.net.widths import Bits, read_bits
from thinwire_private.net.zoo import (
    MINIONN_LIST,
    RESNET32_LIST,
    build,
    listed,
    middle_layers,
    random_pictures,
    with_random_weights,
)


@pytest.mark.parametrize(
    ("name", "million_macs", "thousand_relus"),
    [
        ("digits", 0.23, 2.05),
        ("minionn", 61.1, 173.1),
        ("resnet8w", 12.5, 73.7),
        ("resnet32", 69.1, 303.1),
        ("resnet50", 4089.2, 9006.6),
    ],
)
def test_sizes_are_those_of_the_literature(name: str, million_macs: float, thousand_relus: float) -> None:
    graph = build(name, read_bits("W4A6"))
    assert graph.macs / 1e6 == pytest.approx(million_macs, rel=0.01)
    assert graph.relus / 1e3 == pytest.approx(thousand_relus, rel=0.01)


def test_the_authors_lists_fit() -> None:
    assert len(RESNET32_LIST) == len(middle_layers(build("resnet32", Bits()))) == 30
    graph = listed("resnet32", RESNET32_LIST, read_bits("W4A6"))
    assert [layer.weight_bits for layer in graph.layers if layer.name.endswith(".short")] == [4, 4]
    assert graph.layers[0].weight_bits == graph.layers[-1].weight_bits == 8
    assert len(listed("minionn", MINIONN_LIST, read_bits("W4A6")).layers) == 8
    with pytest.raises(ModelError, match="29 weight widths for 30"):
        listed("resnet32", RESNET32_LIST[1:], read_bits("W4A6"))


@pytest.mark.parametrize("bits", ["W4A6", "W16A16", "W2A6R8"])
@pytest.mark.parametrize("name", ["digits", "resnet8w"])
def test_random_weights_give_lively_activations(name: str, bits: str) -> None:
    graph = with_random_weights(build(name, read_bits(bits)))
    logits = run(graph, random_pictures(graph, 4))
    assert logits.shape == (4, 10)
    assert all(len(np.unique(row)) > 5 for row in logits)

"""Small networks with random weights, for sessions that take milliseconds."""

from __future__ import annotations

import pytest

from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import Sketch, random_pictures, with_random_weights


@pytest.fixture(scope="session")
def small() -> Graph:
    """A convolution and a linear layer on pictures of 4x4."""
    net = Sketch("small", (1, 4, 4), 4, read_bits("W4A6"))
    x = net.relu("relu1", net.conv("conv1", "input", 3, end=True))
    x = net.sum_pool("pool", x, 2, end=True)
    return with_random_weights(net.finish(net.linear("fc", x, 4)))


@pytest.fixture(scope="session")
def pictures(small: Graph) -> IntArray:
    return random_pictures(small, 3)

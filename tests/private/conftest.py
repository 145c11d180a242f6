"""Small networks with random weights, for sessions that take milliseconds."""

from __future__ import annotations

import pytest

from thinwire_private.net.bits import read_bits
from thinwire_private.net.draw import random_pictures, with_random_weights
from thinwire_private.net.graph import Graph
from thinwire_private.net.sketch import Sketch
from thinwire_private.net.value import IntArray


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

"""Views of whole programs: messages tell the server nothing of the picture, the client nothing of weights."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pair import both
from test_program import calm

from thinwire_private.compiler import compile_graph, prepare_graph
from thinwire_private.link.channel import MemoryChannel, memory_pair
from thinwire_private.message import CLIENT, SERVER
from thinwire_private.net.graph import Graph
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build
from thinwire_private.ot.primitives import Prg
from thinwire_private.program import Player
from thinwire_private.variant import Variant, variant

LIMIT = 80  # of a chi-square with 15 degrees of freedom: one false alarm in 10^10


def filled(graph: Graph, value: int) -> Graph:
    """Every weight and bias alike: nothing could differ more."""
    full = {
        layer.name: replace(
            layer,
            weight=np.full(layer.weight_shape, value),
            bias=np.full(layer.weight_shape[:1], value),
        )
        for layer in graph.layers
    }
    return graph.map(lambda node: full.get(node.name, node))


def received(graph: Graph, chosen: Variant, role: int, weight: int, pixel: int) -> list[np.ndarray]:
    """The messages that party `role` received after the set-up, for a batch of two."""
    ready = prepare_graph(filled(graph, weight), chosen)
    channels = memory_pair(30.0)
    players = [
        Player(compile_graph(view, chosen, 2), place, channels[place])
        for place, view in enumerate((ready, ready.public()))
    ]
    both(players[SERVER].setup, players[CLIENT].setup)
    found: list[np.ndarray] = []
    receive = MemoryChannel.receive

    def record(channel: MemoryChannel, num_bytes: int) -> memoryview:
        message = receive(channel, num_bytes)
        if channel is channels[role] and num_bytes:
            found.append(np.frombuffer(message, np.uint8))
        return message

    x = np.full((2, *graph.input.value.shape), pixel)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryChannel, "receive", record)
        both(players[SERVER].infer, lambda: players[CLIENT].infer(x))
    # The last message tells the client its logits, which are meant to differ.
    return found[:-1] if role == CLIENT else found


def distance(first: list[np.ndarray], second: list[np.ndarray]) -> float:
    """The largest chi-square over messages: how often each half byte occurs in the one and in the other."""
    largest = 0.0
    for a, b in zip(first, second, strict=True):
        x, y = (
            np.bincount(data & 15, minlength=16) + np.bincount(data >> 4, minlength=16) for data in (a, b)
        )
        if a.size >= 100:
            largest = max(largest, float(((x - y) ** 2 / np.maximum(x + y, 1)).sum()))
    return largest


@pytest.fixture(scope="module")
def graph() -> Graph:
    return calm(build("digits", read_bits("W3A6")))


@pytest.mark.parametrize("name", ["ours", "ours-ot", "S4", "B1"])
def test_whole_runs_look_alike(graph: Graph, name: str) -> None:
    chosen = variant(name)
    pictures = [received(graph, chosen, SERVER, 1, pixel) for pixel in (0, 21)]
    assert distance(*pictures) < LIMIT
    weights = [received(graph, chosen, CLIENT, weight, 9) for weight in (0, -4)]
    assert distance(*weights) < LIMIT


def test_a_mask_that_is_no_mask_is_caught(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prg, "ring", lambda self, count, width: np.zeros(count, np.uint64))
    opening = replace(variant("ours-ot"), conv="weight_bits")  # the picture itself is opened, minus its mask
    opened = [received(graph, opening, SERVER, 1, pixel) for pixel in (0, 21)]
    assert distance(*opened) > 2 * LIMIT

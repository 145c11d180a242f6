"""Whole networks: every variant equals the integer oracle bit for bit and sends exactly what it predicted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pair import both

from thinwire_private.compiler import compile_graph, prepare_graph
from thinwire_private.errors import ModelError
from thinwire_private.link.channel import Buffer, memory_pair
from thinwire_private.message import CLIENT, SERVER, WireTraffic
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray, Output, Requant
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import Sketch, build, random_pictures, with_random_weights
from thinwire_private.program import Player, Program
from thinwire_private.variant import VARIANTS, Variant, variant


def residual_net(bits: str) -> Graph:
    """A tiny residual network with a 1x1 shortcut, a max pool and an average pool."""
    net = Sketch("tiny", (2, 8, 8), 8, read_bits(bits))
    x, shortcut = net.residual("relu0", net.max_pool("pool0", net.conv("conv0", "input", 4, end=True), 2, 2))
    y = net.conv("conv1", x, 4)
    x, shortcut = net.residual("relu1", net.add("add1", y, shortcut))
    total = net.add("add2", net.conv("conv2", x, 6, stride=2), net.conv("conv3", x, 6, 1, 2))
    x = net.sum_pool("pool", net.relu("relu2", total), 2, end=True)
    return calm(net.finish(net.linear("fc", x, 5)))


def calm(graph: Graph) -> Graph:
    """Shifts so large that random weights overflow nowhere: what the fast mode asks for."""
    changed = {
        node.name: replace(node, shift=max(node.shift, node.taken[0].bits - 1 - node.value.bits))
        for node in graph.of(Requant)
        if node.relu
    }
    return graph.map(lambda node: changed.get(node.name, node))


def players(graph: Graph, chosen: Variant, batch: int, seed: bytes | None = None) -> tuple[Player, Player]:
    ready = prepare_graph(with_random_weights(graph), chosen)
    programs = [compile_graph(view, chosen, batch) for view in (ready, ready.public())]
    assert programs[SERVER].digest() == programs[CLIENT].digest()
    channels = memory_pair(20.0)
    seeds = [None if seed is None else seed + bytes([role]) for role in (SERVER, CLIENT)]
    server, client = (Player(programs[role], role, channels[role], seeds[role]) for role in (SERVER, CLIENT))
    return server, client


def infer(server: Player, client: Player, x: IntArray) -> IntArray:
    return both(server.infer, lambda: client.infer(x))[1]


def predicted(program: Program) -> list[tuple[str, str, str, WireTraffic]]:
    return [(row.layer, row.operator, row.phase, row.traffic) for row in program.costs()]


def measured(player: Player) -> list[tuple[str, str, str, WireTraffic]]:
    return [(row.layer, row.operator, row.phase, row.traffic) for row in player.rows if row.traffic.frames]


def summed(rows: list[tuple[str, str, str, WireTraffic]]) -> dict[tuple[str, str, str], WireTraffic]:
    """Bytes and frames of every operator of a layer, without flights."""
    found: dict[tuple[str, str, str], WireTraffic] = {}
    for layer, operator, phase, each in rows:
        key = layer, operator, phase
        found[key] = found.get(key, WireTraffic()) + replace(each, flights=0)
    return found


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("net", ["digits", "tiny"])
def test_a_private_run_equals_the_oracle_and_its_prediction(name: str, net: str) -> None:
    chosen = VARIANTS[name]
    bits = "W3A6" if chosen.bits == "list" else chosen.bits
    graph = residual_net(bits) if net == "tiny" else calm(build("digits", read_bits(bits)))
    batch = 2 if net == "tiny" else 1
    server, client = players(graph, chosen, batch)
    x = random_pictures(graph, batch)
    both(server.setup, client.setup)
    y = infer(server, client, x)
    assert np.array_equal(y, oracle.run(server.program.graph, x))
    assert measured(client) == predicted(client.program)
    # The server sees messages that cross in the other order, and some of an exchange in its other part.
    assert summed(measured(server)) == summed(predicted(server.program))


@pytest.mark.parametrize("name", ["S2", "S4", "ours", "ours-wan"])
def test_shortcuts_of_their_own_width_and_a_pool_behind_the_relu(name: str) -> None:
    graph = residual_net("W3A5R8")
    net = Sketch("late", (1, 6, 6), 4, read_bits("W3A5"))
    late = calm(
        net.finish(
            net.linear("fc", net.max_pool("pool", net.relu("relu", net.conv("conv", "input", 3)), 2, 2), 4)
        )
    )
    for each in (graph, late):
        server, client = players(each, VARIANTS[name], 2)
        x = random_pictures(each, 2)
        both(server.setup, client.setup)
        assert np.array_equal(infer(server, client, x), oracle.run(server.program.graph, x))
        assert measured(client) == predicted(client.program)


@pytest.mark.parametrize("name", ["ours", "S6-clamp", "ours-wan"])
def test_the_clamp_is_exact_where_much_overflows(name: str) -> None:
    graph = build("digits", read_bits("W4A3"))
    low = {node.name: replace(node, shift=max(0, node.shift - 3)) for node in graph.of(Requant)}
    wild = graph.map(lambda node: low.get(node.name, node))
    server, client = players(wild, VARIANTS[name], 4)
    x = random_pictures(wild, 4)
    assert sum(each.count for each in oracle.overflows(server.program.graph, x)) > 500
    both(server.setup, client.setup)
    assert np.array_equal(infer(server, client, x), oracle.run(server.program.graph, x))


def test_only_the_class_is_revealed_when_the_output_is_an_argmax() -> None:
    graph = calm(build("digits", read_bits("W3A6")))
    shown = graph.map(lambda node: replace(node, argmax=True) if isinstance(node, Output) else node)
    server, client = players(shown, variant("ours"), 3)
    x = random_pictures(shown, 3)
    both(server.setup, client.setup)
    assert np.array_equal(infer(server, client, x), oracle.run(server.program.graph, x))


def test_queries_of_one_client_share_the_set_up_and_no_pad() -> None:
    graph = calm(build("digits", read_bits("W3A6")))
    server, client = players(graph, variant("ours"), 1)
    both(server.setup, client.setup)
    once = server.channel.counters.total_bytes
    sent: list[bytes] = []
    send = client.channel.send

    def record(data: Buffer) -> None:
        sent.append(bytes(memoryview(data).cast("B")))
        send(data)

    client.channel.send = record  # type: ignore[method-assign]
    x = random_pictures(graph, 1)
    for _ in range(2):
        both(server.prepare, client.prepare)
        assert np.array_equal(infer(server, client, x), oracle.run(server.program.graph, x))
    total = server.program.total
    assert server.channel.counters.total_bytes - once == 2 * total("offline", "online").total_bytes
    # The same picture twice: with a pad or a mask used twice, messages of the client would repeat.
    long = [message for message in sent if len(message) > 16]
    assert len(set(long)) == len(long)


def test_the_program_of_another_model_has_another_digest() -> None:
    chosen = variant("ours")
    digests = {compile_graph(build("digits", read_bits(bits)), chosen).digest() for bits in ("W3A6", "W4A6")}
    assert len(digests | {compile_graph(build("digits", read_bits("W3A6")), variant("S6")).digest()}) == 3


def test_pictures_out_of_range_or_of_another_number_are_refused() -> None:
    graph = build("digits", read_bits("W3A6"))
    server, client = players(graph, variant("ours"), 1)
    both(server.setup, client.setup)
    both(server.prepare, client.prepare)
    with pytest.raises(ModelError, match="range"):
        client.infer(random_pictures(graph, 1) + 32)


def test_a_batch_of_none_is_refused() -> None:
    with pytest.raises(ModelError, match="batch of 0"):
        compile_graph(build("digits", read_bits("W3A6")), variant("ours"), 0)
